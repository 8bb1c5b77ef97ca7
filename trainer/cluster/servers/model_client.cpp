// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/model_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <utility>

#include "dataflow/error.h"
#include "trainer/cluster/host.h"

namespace penstock::cluster {
namespace {

net::CurveSetup client_keys(const ModelClient::Settings& settings) {
  net::CurveSetup curve{.role = net::CurveSetup::Role::client, .own = settings.own};
  for (const ModelServerAddress& each : settings.servers) {
    curve.server_keys.push_back(each.public_key);
  }
  return curve;
}

}  // namespace

ModelClient::ModelClient(Settings settings)
    : settings_(std::move(settings)),
      sockets_(client_keys(settings_), {}, 1),
      on_stopping_(settings_.stopping, [this] { stop_.signal(); }),
      on_abandon_(settings_.abandon, [this] { stop_.signal(); }) {}

void ModelClient::throw_if_stopped() const {
  if (settings_.stopping.stop_requested() || settings_.abandon.stop_requested()) {
    throw Error("the run is being stopped");
  }
}

std::size_t ModelClient::connection(std::int32_t process, std::size_t elements, Time deadline) {
  const auto known = connections_.find(process);
  if (known != connections_.end()) return known->second;
  const ModelServerAddress& to = server(process);
  const std::size_t socket = sockets_.connect(
      to.endpoint.empty() ? network_endpoint(to, deadline) : to.endpoint,
      static_cast<std::size_t>(process),
      {.frame = net::kTransportBytes + elements * sizeof(float), .watched = false, .linger = {}});
  return connections_.emplace(process, socket).first->second;
}

std::string ModelClient::network_endpoint(const ModelServerAddress& to, Time deadline) const {
  const auto address =
      find_reachable(to.addresses, settings_.own_addresses, to.port, deadline, stop_.get());
  if (address) return fmt::format("tcp://{}:{}", *address, to.port);
  throw_if_stopped();
  throw TimeoutError(
      "connecting to the model server on host {}: none of its addresses ({}) accepts connections "
      "to port {} from here; let a firewall pass them, or use sync-sgd or sma",
      to.host, fmt::join(to.addresses, ", "), to.port);
}

/// The reply to the latest request, whose data stay in message_. Nothing: none arrived before the
/// deadline.
std::optional<ServerHeader> ModelClient::await_reply(Time deadline) {
  while (true) {
    throw_if_stopped();
    while (sockets_.receive(message_)) {
      if (const auto reply = parse_reply()) return reply;
    }
    const Nanoseconds left = deadline - std::chrono::steady_clock::now();
    if (left <= Nanoseconds::zero()) return std::nullopt;
    sockets_.wait(left, stop_);
  }
}

/// Nothing: it does not answer this request; it may answer an earlier one.
std::optional<ServerHeader> ModelClient::parse_reply() const {
  try {
    const std::size_t bytes = message_.data.bytes.size();
    const ServerHeader reply = parse_header(message_.header, bytes);
    if (message_.frames > 2 || reply.step != number_) return std::nullopt;
    const bool fits = reply.kind == MessageKind::model ? bytes % sizeof(float) == 0
                                                       : reply.kind == MessageKind::no_model;
    return fits ? std::optional(reply) : std::nullopt;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::optional<ModelClient::Model> ModelClient::read(std::int32_t process, std::int32_t owner,
                                                    std::size_t elements) {
  // Peers use real time, whichever clock the harness uses.
  const Time deadline = std::chrono::steady_clock::now() + settings_.patience;
  throw_if_stopped();
  const std::size_t socket = connection(process, elements, deadline);
  const ModelServerAddress& to = server(process);
  sockets_.send(socket, {},
                to_bytes({.kind = MessageKind::read_model,
                          .key = static_cast<std::uint32_t>(owner),
                          .step = ++number_,
                          .length = to.token.size()}),
                std::as_bytes(std::span(to.token)), nullptr);
  const auto reply = await_reply(deadline);
  if (!reply) {
    throw TimeoutError(
        "waited {} s for the model of rank {} on host {}: it hangs, is stopped, or cannot be "
        "reached; see the messages of the launcher, or raise --timeout",
        to_seconds(settings_.patience), owner, to.host);
  }
  if (reply->kind == MessageKind::no_model) return std::nullopt;
  const std::size_t found = reply->length / sizeof(float);
  if (found != elements) {
    throw Error(
        "reading the model of rank {}: it has {} elements where this rank's has {}; start all "
        "ranks with the same model",
        owner, found, elements);
  }
  return Model{static_cast<std::int64_t>(reply->version), message_.data.bytes};
}

}  // namespace penstock::cluster
