// SPDX-License-Identifier: Apache-2.0
// Replaces the sockets and keys in builds without ZeroMQ.
#include <exception>

#include "dataflow/net/message_sockets.h"

namespace penstock::net {

bool has_curve() noexcept { return false; }
CurveKeys make_curve_keys() { throw Unavailable("this program was built without ZeroMQ"); }
CurveSetup read_curve(const CurveFiles&) { return {}; }

struct MessageSockets::State {};
MessageSockets::MessageSockets(const CurveSetup&, const PeerReports&, int) {
  throw Unavailable(
      "talking to parameter servers, or to the models of other processes: this program was built "
      "without ZeroMQ; install cppzmq-dev and configure again");
}
MessageSockets::~MessageSockets() = default;
std::size_t MessageSockets::listen(const std::string&, const SocketLimits&) { std::terminate(); }
std::size_t MessageSockets::connect(const std::string&, std::size_t, const SocketLimits&) {
  std::terminate();
}
std::string MessageSockets::endpoint(std::size_t) const { return {}; }
void MessageSockets::wait(Nanoseconds, const EventFd&) {}
bool MessageSockets::receive(Received&) { return false; }
std::vector<MessageSockets::Ended> MessageSockets::ended() { return {}; }
std::int64_t MessageSockets::refused() const noexcept { return 0; }
void MessageSockets::send(std::size_t, const std::string&, std::span<const std::byte>,
                          std::span<const std::byte>, const Borrowed*) {}
void MessageSockets::drop() {}

}  // namespace penstock::net
