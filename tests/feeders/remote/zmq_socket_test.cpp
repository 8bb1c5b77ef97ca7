// SPDX-License-Identifier: Apache-2.0
// How sockets for feeding end.
#include "feeders/remote/receive/zmq_socket.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// libzmq aborts the process unless this is prevented.
TEST(ZmqSocketEnd, BothEndsMayCloseInTheMidstOfAMessage) {
  const TempFolder folder;
  const std::string endpoint = "ipc://" + folder.path().string() + "/feed";
  std::vector<std::byte> frame(3'000'000);
  for (int round = 0; round < 50; ++round) {
    zmq::context_t context;
    std::optional<zmq::socket_t> puller(std::in_place, context, ZMQ_PULL);
    puller->set(zmq::sockopt::linger, 0);
    puller->set(zmq::sockopt::rcvhwm, 1);
    puller->set(zmq::sockopt::rcvtimeo, 20'000);
    puller->bind(endpoint);
    std::optional<remote::ZmqSocket> pusher(
        std::in_place, net::parse_endpoint(endpoint),
        remote::ZmqSocketOptions{.role = remote::ZmqSocketOptions::Role::push, .bind = false});
    ASSERT_EQ(pusher->wait(20s, {}), remote::ZmqSocket::Wake::ready);
    zmq::socket_ref socket(zmq::from_handle, pusher->native());
    ASSERT_TRUE(socket.send(zmq::message_t(1), zmq::send_flags::none));
    ASSERT_TRUE(socket.send(zmq::message_t(1), zmq::send_flags::sndmore));
    ASSERT_TRUE(socket.send(zmq::buffer(frame), zmq::send_flags::none));
    zmq::message_t first;
    ASSERT_TRUE(puller->recv(first)) << "the large one is under way behind it";
    const std::jthread closing([&] { pusher.reset(); });
    puller.reset();
  }
}

}  // namespace
}  // namespace penstock
