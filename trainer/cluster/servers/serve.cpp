// SPDX-License-Identifier: Apache-2.0
#include "trainer/servers/serve.h"

#include <optional>
#include <utility>
#include <vector>

#include "trainer/servers/sockets.h"

namespace penstock {
namespace {

/// Between two looks at the deadlines.
constexpr Nanoseconds kPeriod = std::chrono::milliseconds(100);
/// Messages between two looks at what else there is.
constexpr int kAtOnce = 64;

class SocketOutlet final : public Server::Outlet {
 public:
  SocketOutlet(RouterSocket& socket, const std::function<void(const std::string&)>& say)
      : socket_(socket), say_(say) {}
  void send(const std::string& peer, const ServerHeader& header, std::span<const std::byte> data,
            bool stays) override {
    socket_.send(peer, header, data, stays);
  }
  void say(const std::string& sentence) override { say_(sentence); }

 private:
  RouterSocket& socket_;
  const std::function<void(const std::string&)>& say_;
};

}  // namespace

Served serve_parameters(const ServeWish& wish, Clock& clock,
                        const std::function<void(const std::string&)>& say, std::stop_token stop) {
  const std::string& address = wish.cluster.ps_hosts[static_cast<std::size_t>(wish.task)];
  std::optional<RouterSocket> socket;
  const Security security{.insecure = wish.insecure,
                          .curve = read_curve(wish.curve),
                          .reports = {.refused = {}, .say = say}};
  socket.emplace(address, security, wish.io_threads);
  SocketOutlet outlet(*socket, say);
  Server server(wish.cluster, wish.task, wish.patience, clock, outlet);
  const WakeSignal wake;
  const std::stop_callback forward(stop, [&] { wake.signal(); });
  bool stopped = false;
  // Those whose connection has ended, while what they sent before is still to be received. A
  // descriptor may be used again: who has it is asked when the end is seen, before a message that
  // came after it is.
  std::vector<std::int32_t> gone;
  const auto see_connections = [&] {
    for (const int connection : socket->ended_connections()) {
      for (const std::int32_t task : server.tasks_on(connection)) gone.push_back(task);
    }
  };
  Time looked = clock.now();
  while (!server.done()) {
    socket->wait(kPeriod, wake);
    if (stop.stop_requested() && !stopped) {
      stopped = true;
      wake.clear();
      server.end(wish.cluster.server(wish.task) + " was stopped");
    }
    Server::Received message;
    int received = 0;
    for (; received < kAtOnce && socket->receive(message); ++received) {
      see_connections();
      server.receive(std::move(message));
    }
    if (received < kAtOnce) {  // there is no more of those who had gone by then
      for (const std::int32_t task : std::exchange(gone, {})) server.connection_ended(task);
    }
    see_connections();
    if (clock.now() - looked >= kPeriod) {
      looked = clock.now();
      server.look();
    }
  }
  const std::int64_t refused = socket->refused();
  socket.reset();  // what it sends lies in the server
  return {.failure = server.failure(),
          .rejected = server.rejected(),
          .refused = refused,
          .stopped = stopped};
}

}  // namespace penstock
