// SPDX-License-Identifier: Apache-2.0
// A worker's connection to servers of which the test plays one.
#include "trainer/cluster/servers/connection.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "tests/support/reserved_port.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Another server takes long to come. A server that the worker has reached must not take the worker
/// for lost meanwhile.
TEST(ServerConnection, SendsSignsOfLifeWhileItWaitsForAnotherServer) {
  zmq::context_t context;
  zmq::socket_t server(context, ZMQ_ROUTER);
  server.set(zmq::sockopt::linger, 0);
  server.set(zmq::sockopt::rcvtimeo, 20'000);
  server.bind("tcp://127.0.0.1:*");
  const std::string endpoint = server.get(zmq::sockopt::last_endpoint);
  const ReservedPort absent;
  std::stop_source stop;
  auto joining = std::async(std::launch::async, [&] {
    SteadyClock clock;
    cluster::ServerConnection connection(
        {.cluster = {.ps_hosts = {endpoint.substr(std::string("tcp://").size()),
                                  "127.0.0.1:" + absent.text()},
                     .worker_hosts = {"127.0.0.1:1"},
                     .program = "a test"},
         .optimizer = "sgd",
         .stop = stop.get_token()},
        clock);
  });
  zmq::message_t worker;
  const auto receive = [&] {
    zmq::message_t header, data;
    EXPECT_TRUE(server.recv(worker) && server.recv(header));
    if (header.more()) {
      EXPECT_TRUE(server.recv(data));
    }
    return cluster::parse_header({header.data<std::byte>(), header.size()}, data.size());
  };
  EXPECT_EQ(receive().kind, cluster::MessageKind::hello);
  const auto welcome = cluster::to_bytes({.kind = cluster::MessageKind::welcome});
  server.send(worker, zmq::send_flags::sndmore);
  server.send(zmq::buffer(welcome), zmq::send_flags::none);
  const cluster::ServerHeader beat = receive();
  EXPECT_EQ(beat.kind, cluster::MessageKind::beat);
  EXPECT_EQ(beat.key, static_cast<std::uint32_t>(cluster::RankPhase::joining));
  stop.request_stop();
  EXPECT_THROW(joining.get(), Error);
}

}  // namespace
}  // namespace penstock
