// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/process_models/client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "dataflow/error.h"
#include "dataflow/machine/event_fd.h"
#include "trainer/cluster/host.h"
#include "trainer/cluster/servers/sockets.h"

namespace penstock::cluster {

struct ModelClient::State {
  explicit State(Settings the_settings)
      : settings(std::move(the_settings)),
        sockets(curve_of(settings), {}, 1),
        on_stopping(settings.stopping, [this] { stop.signal(); }),
        on_abandon(settings.abandon, [this] { stop.signal(); }) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static net::CurveSetup curve_of(const Settings& settings) {
    net::CurveSetup curve{.role = net::CurveSetup::Role::client, .own = settings.own};
    for (const ModelServerAddress& each : settings.servers) {
      curve.server_keys.push_back(each.public_key);
    }
    return curve;
  }
  const ModelServerAddress& server(std::int32_t process) const {
    return settings.servers.at(static_cast<std::size_t>(process));
  }
  bool ends() const noexcept {
    return settings.stopping.stop_requested() || settings.abandon.stop_requested();
  }

  std::size_t connection(std::int32_t process, std::size_t elements, Time deadline) {
    const auto known = connections.find(process);
    if (known != connections.end()) return known->second;
    const ModelServerAddress& to = server(process);
    const std::size_t socket = sockets.connect(
        to.endpoint.empty() ? network_endpoint(to, deadline) : to.endpoint,
        static_cast<std::size_t>(process),
        {.frame = kTransportBytes + elements * sizeof(float), .watched = false, .linger = {}});
    return connections.emplace(process, socket).first->second;
  }

  std::string network_endpoint(const ModelServerAddress& to, Time deadline) const {
    const auto address =
        find_reachable(to.addresses, settings.own_addresses, to.port, deadline, stop.get());
    if (address) return fmt::format("tcp://{}:{}", *address, to.port);
    if (ends()) throw Error("the run is being stopped");
    throw TimeoutError(fmt::format(
        "connecting to the model server on host {}: none of its addresses ({}) accepts "
        "connections to port {} from here; let a firewall pass them, or use sync-sgd or sma",
        to.host, fmt::join(to.addresses, ", "), to.port));
  }

  /// The reply to request `number`, whose data stay in `message`. Nothing: none arrived before the
  /// deadline.
  std::optional<ServerHeader> await_reply(Time deadline) {
    while (true) {
      if (ends()) throw Error("the run is being stopped");
      while (sockets.receive(message)) {
        if (const auto reply = parse_reply()) return reply;
      }
      const Nanoseconds left = deadline - std::chrono::steady_clock::now();
      if (left <= Nanoseconds::zero()) return std::nullopt;
      sockets.wait(left, stop);
    }
  }

  /// Nothing: it does not answer this request; it may answer an earlier one.
  std::optional<ServerHeader> parse_reply() const {
    try {
      const std::size_t bytes = message.data.bytes.size();
      const ServerHeader reply = parse_header(message.header, bytes);
      if (message.frames > 2 || reply.step != number) return std::nullopt;
      const bool fits = reply.kind == MessageKind::model ? bytes % sizeof(float) == 0
                                                         : reply.kind == MessageKind::no_model;
      return fits ? std::optional(reply) : std::nullopt;
    } catch (const DataError&) {
      return std::nullopt;
    }
  }

  const Settings settings;
  EventFd stop;
  std::uint64_t number = 0;  // of the latest request
  MessageSockets sockets;
  std::map<std::int32_t, std::size_t> connections;  // sockets, by process
  Received message;
  std::stop_callback<std::function<void()>> on_stopping, on_abandon;
};

ModelClient::ModelClient(Settings settings)
    : state_(std::make_unique<State>(std::move(settings))) {}
ModelClient::~ModelClient() = default;

std::optional<ModelClient::Model> ModelClient::read(std::int32_t process, std::int32_t owner,
                                                    std::size_t elements) {
  State& state = *state_;
  // Peers use real time, whichever clock the harness uses.
  const Time deadline = std::chrono::steady_clock::now() + state.settings.patience;
  if (state.ends()) throw Error("the run is being stopped");
  const std::size_t socket = state.connection(process, elements, deadline);
  const ModelServerAddress& server = state.server(process);
  state.sockets.send(socket, {},
                     {.kind = MessageKind::read_model,
                      .key = static_cast<std::uint32_t>(owner),
                      .step = ++state.number,
                      .length = server.token.size()},
                     std::as_bytes(std::span(server.token)), nullptr);
  const auto reply = state.await_reply(deadline);
  if (!reply) {
    throw TimeoutError(fmt::format(
        "waited {} s for the model of rank {} on host {}: it hangs, is stopped, or cannot be "
        "reached; see the messages of the launcher, or raise --timeout",
        std::chrono::duration<double>(state.settings.patience).count(), owner, server.host));
  }
  if (reply->kind == MessageKind::no_model) return std::nullopt;
  const std::size_t found = reply->length / sizeof(float);
  if (found != elements) {
    throw Error(
        fmt::format("reading the model of rank {}: it has {} elements where this rank's "
                    "has {}; start all ranks with the same model",
                    owner, found, elements));
  }
  return Model{static_cast<std::int64_t>(reply->version), state.message.data.bytes};
}

}  // namespace penstock::cluster
