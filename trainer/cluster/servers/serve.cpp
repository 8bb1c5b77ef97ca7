// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/serve.h"

#include <memory>
#include <utility>
#include <vector>

#include "dataflow/machine/event_fd.h"
#include "trainer/cluster/servers/sockets.h"

namespace penstock::cluster {
namespace {

/// Interval between checks of the deadlines.
constexpr Nanoseconds kPeriod = std::chrono::milliseconds(100);
/// Maximum number of messages before other checks.
constexpr int kAtOnce = 64;

class SocketOutlet final : public Server::Outlet {
 public:
  SocketOutlet(MessageSockets& socket, const std::function<void(const std::string&)>& say)
      : socket_(socket), say_(say) {}
  void send(const std::string& peer, const ServerHeader& header, std::span<const std::byte> data,
            bool stays) override {
    constexpr Borrowed kStays{};
    socket_.send(0, peer, header, data, stays ? &kStays : nullptr);
  }
  void say(const std::string& sentence) override { say_(sentence); }

 private:
  MessageSockets& socket_;
  const std::function<void(const std::string&)>& say_;
};

}  // namespace

Served serve_parameters(const ServeArguments& arguments, Clock& clock,
                        const std::function<void(const std::string&)>& say, std::stop_token stop) {
  const std::string& address = arguments.cluster.ps_hosts[static_cast<std::size_t>(arguments.task)];
  std::unique_ptr<MessageSockets> socket =
      listen_as_server(address, arguments.insecure, net::read_curve(arguments.curve),
                       {.refused = {}, .say = say}, arguments.io_threads);
  SocketOutlet outlet(*socket, say);
  Server server(arguments.cluster, arguments.task, arguments.patience, clock, outlet);
  const EventFd wake;
  const std::stop_callback forward(stop, [&] { wake.signal(); });
  bool stopped = false;
  // Tasks whose connection has ended but whose earlier messages may still arrive. A descriptor may
  // be reused, so its tasks are looked up as soon as the end is seen, before a later message is
  // handled.
  std::vector<std::int32_t> gone;
  const auto see_connections = [&] {
    for (const MessageSockets::Ended& ended : socket->ended()) {
      for (const std::int32_t task : server.tasks_on(ended.connection)) gone.push_back(task);
    }
  };
  Time looked = clock.now();
  while (!server.done()) {
    socket->wait(kPeriod, wake);
    if (stop.stop_requested() && !stopped) {
      stopped = true;
      server.end(arguments.cluster.server(arguments.task) + " was stopped");
    }
    Received message;
    int received = 0;
    for (; received < kAtOnce && socket->receive(message); ++received) {
      see_connections();
      server.receive(std::move(message));
    }
    if (received < kAtOnce) {  // all messages of the tasks in `gone` have been received
      for (const std::int32_t task : std::exchange(gone, {})) server.connection_ended(task);
    }
    see_connections();
    if (clock.now() - looked >= kPeriod) {
      looked = clock.now();
      server.look();
    }
  }
  const std::int64_t refused = socket->refused();
  socket.reset();  // messages in progress use the server's memory
  return {.failure = server.failure(),
          .rejected = server.rejected(),
          .refused = refused,
          .stopped = stopped};
}

}  // namespace penstock::cluster
