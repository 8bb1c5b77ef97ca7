// SPDX-License-Identifier: Apache-2.0
// Replaces sockets, serve and connection in builds without ZeroMQ.
#include "dataflow/error.h"
#include "trainer/cluster/servers/connection.h"
#include "trainer/cluster/servers/serve.h"

namespace penstock::cluster {
namespace {

[[noreturn]] void refuse() {
  throw Unavailable(
      "parameter servers as processes: this program was built without ZeroMQ; install cppzmq-dev "
      "and configure again");
}

}  // namespace

Served serve_parameters(const ServeArguments&, Clock&,
                        const std::function<void(const std::string&)>&, std::stop_token) {
  refuse();
}

struct ServerConnection::State {};

ServerConnection::ServerConnection(Arguments, Clock&) { refuse(); }
ServerConnection::~ServerConnection() = default;
const Cluster& ServerConnection::cluster() const noexcept { std::terminate(); }
std::int32_t ServerConnection::task() const noexcept { return -1; }
std::vector<std::string> ServerConnection::all_gather(std::string_view, Nanoseconds,
                                                      std::string_view) {
  refuse();
}
void ServerConnection::leave(int) {}
void ServerConnection::attach(std::stop_token, std::stop_token) {}
void ServerConnection::begin(const PartPlan&, ServerRule, const Tensor&, const Tensor&) {}
void ServerConnection::push(const Push&, const Terms&) {}
void ServerConnection::set_credit(std::size_t) {}
ServerConnection::Answers ServerConnection::await() { return {}; }
void ServerConnection::release() noexcept {}

}  // namespace penstock::cluster
