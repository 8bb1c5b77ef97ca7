// SPDX-License-Identifier: Apache-2.0
// A thread of this process that pushes to zmq-consume. Sent messages are in the consumer's socket
// immediately.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <zmq.hpp>

#include "feeders/remote/receive/zmq_socket.h"
#include "tests/feeders/remote/zmq_fixture.h"

namespace penstock {

class InsideProducer {
 public:
  explicit InsideProducer(const std::string& endpoint) {
    push().set(zmq::sockopt::linger, 0);
    push().set(zmq::sockopt::sndtimeo, 20000);
    push().connect(endpoint);
  }
  void send(const std::vector<std::byte>& bytes) {
    ASSERT_TRUE(push().send(zmq::buffer(bytes), zmq::send_flags::none));
  }

 private:
  struct Close {
    void operator()(void* socket) const noexcept { zmq_close(socket); }
  };
  zmq::socket_ref push() const { return {zmq::from_handle, socket_.get()}; }

  std::unique_ptr<void, Close> socket_{zmq_socket(remote::inproc_context(), ZMQ_PUSH)};
};

/// A name that no other test of the process uses.
inline std::string inside_endpoint(const std::string& name) {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  remote::inproc_context();
  return "inproc://" + std::string(test.name()) + "-" + name;
}

}  // namespace penstock
