// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/process_models/client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/machine/event_fd.h"
#include "dataflow/net/zmq_monitor.h"
#include "trainer/cluster/process_models/host.h"

namespace penstock::cluster {

struct ModelClient::State {
  explicit State(Settings the_settings)
      : settings(std::move(the_settings)),
        on_stopping(settings.stopping, [this] { stop.signal(); }),
        on_abandon(settings.abandon, [this] { stop.signal(); }) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const ModelServerAddress& server(std::int32_t process) const {
    return settings.servers.at(static_cast<std::size_t>(process));
  }
  bool ends() const noexcept {
    return settings.stopping.stop_requested() || settings.abandon.stop_requested();
  }

  zmq::socket_t& connection(std::int32_t process, std::size_t elements, Time deadline) {
    const auto known = connections.find(process);
    if (known != connections.end()) return known->second;
    const ModelServerAddress& to = server(process);
    zmq::socket_t socket(context, ZMQ_DEALER);
    const std::size_t longest = kTransportBytes + elements * sizeof(float);
    net::bound_socket(socket.handle(), static_cast<std::int64_t>(longest));
    if (to.endpoint.empty()) {
      net::make_curve_client(socket.handle(), settings.own, to.public_key);
      socket.connect(network_endpoint(to, deadline));
    } else {
      socket.connect(to.endpoint);
    }
    return connections.emplace(process, std::move(socket)).first->second;
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

  /// The reply to request `number`, whose frames stay in `header` and `body`. Nothing: none arrived
  /// before the deadline.
  std::optional<ModelReply> await_reply(zmq::socket_t& socket, Time deadline) {
    while (true) {
      zmq_pollitem_t items[] = {{socket.handle(), 0, ZMQ_POLLIN, 0},
                                {nullptr, stop.get(), ZMQ_POLLIN, 0}};
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (zmq_poll(items, 2, std::max<long>(left.count(), 0)) < 0) {
        if (zmq_errno() == EINTR) continue;
        throw zmq::error_t();
      }
      if (items[1].revents != 0) throw Error("the run is being stopped");
      if (items[0].revents != 0) {
        if (const auto reply = receive(socket)) return reply;
      }
      if (left.count() <= 0) return std::nullopt;
    }
  }

  /// Receives one message. Nothing: it does not answer this request; it may answer an earlier one.
  std::optional<ModelReply> receive(zmq::socket_t& socket) {
    std::size_t frames = 0;
    for (bool more = true; more; ++frames) {
      zmq::message_t frame;
      if (!socket.recv(frame, zmq::recv_flags::dontwait)) return std::nullopt;
      more = frame.more();
      if (frames == 0) header = std::move(frame);
      if (frames == 1) body = std::move(frame);
    }
    const auto reply = parse_model_message<ModelReply>({header.data<std::byte>(), header.size()});
    if (!reply || reply->number != number) return std::nullopt;
    const bool has_model = reply->version != ModelReply::kNone;
    if (frames != (has_model ? 2U : 1U)) return std::nullopt;
    if (has_model && body.size() % sizeof(float) != 0) return std::nullopt;
    if (has_model && reply->elements != body.size() / sizeof(float)) return std::nullopt;
    return reply;
  }

  const Settings settings;
  EventFd stop;
  std::uint64_t number = 0;  // of the latest request
  zmq::context_t context;
  std::map<std::int32_t, zmq::socket_t> connections;  // by process
  zmq::message_t header, body;
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
  zmq::socket_t& socket = state.connection(process, elements, deadline);
  const ModelServerAddress& server = state.server(process);
  const ModelRequest request{.owner = owner, .number = ++state.number, .token = server.token};
  socket.send(zmq::buffer(&request, sizeof request), zmq::send_flags::dontwait);
  const auto reply = state.await_reply(socket, deadline);
  if (!reply) {
    throw TimeoutError(fmt::format(
        "waited {} s for the model of rank {} on host {}: it hangs, is stopped, or cannot be "
        "reached; see the messages of the launcher, or raise --timeout",
        std::chrono::duration<double>(state.settings.patience).count(), owner, server.host));
  }
  if (reply->version == ModelReply::kNone) return std::nullopt;
  if (reply->elements != elements) {
    throw Error(
        fmt::format("reading the model of rank {}: it has {} elements where this rank's "
                    "has {}; start all ranks with the same model",
                    owner, reply->elements, elements));
  }
  return Model{reply->version, {state.body.data<std::byte>(), state.body.size()}};
}

}  // namespace penstock::cluster
