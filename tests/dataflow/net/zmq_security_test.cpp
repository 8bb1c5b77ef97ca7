// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/zmq_security.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/net/socket_security.h"
#include "dataflow/net/zmq_monitor.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class CurveSockets : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!net::has_curve()) GTEST_SKIP() << "this libzmq was built without CURVE";
  }

  /// A client's socket, connected to the server, with events of its handshake.
  struct Client {
    zmq::socket_t socket, events;
  };
  Client connect(zmq::context_t& context, zmq::socket_t& server, const net::CurveKeys& own,
                 const std::string& server_key) {
    Client client{zmq::socket_t(context, ZMQ_DEALER), zmq::socket_t(context, ZMQ_PAIR)};
    client.socket.set(zmq::sockopt::linger, 0);
    const std::string events = fmt::format("inproc://events{}", ++clients_);
    zmq_socket_monitor(client.socket.handle(), events.c_str(),
                       ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                           ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_DISCONNECTED |
                           ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL);
    client.events.connect(events);
    client.events.set(zmq::sockopt::linger, 0);
    if (!server_key.empty()) net::make_curve_client(client.socket.handle(), own, server_key);
    client.socket.connect(server.get(zmq::sockopt::last_endpoint));
    return client;
  }
  /// Returns how the handshake ended.
  static int first_event(Client& client) {
    client.events.set(zmq::sockopt::rcvtimeo, 10000);
    zmq::message_t number, address;
    if (!client.events.recv(number)) return 0;
    static_cast<void>(client.events.recv(address));
    std::uint16_t event = 0;
    std::memcpy(&event, number.data(), sizeof event);
    return event;
  }

  int clients_ = 0;
};

TEST_F(CurveSockets, AdmitKnownKeysOnly) {
  const net::CurveKeys server_keys = net::make_curve_keys(), known = net::make_curve_keys(),
                       stranger = net::make_curve_keys();
  zmq::context_t context, elsewhere;
  std::atomic<int> refused{0};
  net::CurveGate gate(context.handle(), {.keys = {known.public_key}},
                      [&](const std::string&, const std::string&) { ++refused; });
  zmq::socket_t server(context, ZMQ_ROUTER);
  server.set(zmq::sockopt::linger, 0);
  server.set(zmq::sockopt::rcvtimeo, 10000);
  gate.guard(server.handle(), server_keys);
  server.bind("tcp://127.0.0.1:*");

  Client unknown = connect(elsewhere, server, stranger, server_keys.public_key);
  EXPECT_EQ(first_event(unknown), ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
  EXPECT_GE(refused, 1);
  Client plain = connect(elsewhere, server, {}, "");
  EXPECT_NE(first_event(plain), ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
  Client mistaken = connect(elsewhere, server, known, stranger.public_key);
  EXPECT_NE(first_event(mistaken), ZMQ_EVENT_HANDSHAKE_SUCCEEDED);

  Client welcome = connect(elsewhere, server, known, server_keys.public_key);
  EXPECT_EQ(first_event(welcome), ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
  for (Client* const one : {&unknown, &plain, &mistaken, &welcome}) {
    one->socket.send(zmq::str_buffer("hello"), zmq::send_flags::dontwait);
  }
  zmq::message_t sender, text;
  ASSERT_TRUE(server.recv(sender));
  ASSERT_TRUE(server.recv(text));
  EXPECT_EQ(text.to_string(), "hello");
  server.set(zmq::sockopt::rcvtimeo, 0);
  EXPECT_FALSE(server.recv(sender)) << "a stranger's message came in";
}

TEST_F(CurveSockets, RefuseWhatIsNoKey) {
  zmq::context_t context;
  EXPECT_THROW(net::CurveGate(context.handle(), {.keys = {"short"}}), ConfigError);
  zmq::socket_t socket(context, ZMQ_DEALER);
  EXPECT_THROW(net::make_curve_client(socket.handle(), net::make_curve_keys(), "short"),
               ConfigError);
}

TEST_F(CurveSockets, HaveOtherKeysEachTime) {
  const net::CurveKeys one = net::make_curve_keys(), other = net::make_curve_keys();
  EXPECT_EQ(one.public_key.size(), 40U);
  EXPECT_NE(one.public_key, other.public_key);
  EXPECT_NE(one.secret_key, other.secret_key);
  EXPECT_NE(one.secret_key, one.public_key);
}

/// The next event of a socket; fails after 10 s.
net::ConnectionEvent next_event(net::ZmqMonitor& monitor) {
  zmq_pollitem_t item{monitor.handle(), 0, ZMQ_POLLIN, 0};
  zmq_poll(&item, 1, 10000);
  return monitor.next().value();
}

TEST(ZmqMonitor, TellsWhoCameAndWentAndProbesThemOverTcp) {
  zmq::context_t context, elsewhere;
  zmq::socket_t server(context, ZMQ_PULL);
  net::bound_socket(server.handle(), 100);
  net::ZmqMonitor monitor(context.handle(), server.handle());
  server.bind("tcp://127.0.0.1:*");
  zmq::socket_t client(elsewhere, ZMQ_PUSH);
  client.set(zmq::sockopt::linger, 0);
  client.connect(server.get(zmq::sockopt::last_endpoint));
  const net::ConnectionEvent opened = next_event(monitor);
  EXPECT_EQ(opened.kind, net::ConnectionEvent::Kind::opened);
  EXPECT_EQ(opened.peer, "127.0.0.1");
  int on = 0, idle = 0;
  socklen_t size = sizeof on;
  EXPECT_EQ(getsockopt(opened.connection, SOL_SOCKET, SO_KEEPALIVE, &on, &size), 0);
  EXPECT_EQ(getsockopt(opened.connection, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &size), 0);
  EXPECT_EQ(on, 1);
  EXPECT_LE(idle, 30);
  EXPECT_EQ(next_event(monitor).kind, net::ConnectionEvent::Kind::joined);
  client.send(zmq::message_t(101), zmq::send_flags::none);  // one byte too many
  const net::ConnectionEvent ended = next_event(monitor);
  EXPECT_EQ(ended.kind, net::ConnectionEvent::Kind::ended);
  EXPECT_EQ(ended.connection, opened.connection);
  EXPECT_EQ(ended.peer, "127.0.0.1");
  EXPECT_FALSE(ended.fault);
}

TEST(ZmqMonitor, NamesProcessesOfThisMachine) {
  zmq::context_t context, elsewhere;
  zmq::socket_t server(context, ZMQ_PULL);
  net::bound_socket(server.handle(), -1);
  net::ZmqMonitor monitor(context.handle(), server.handle());
  const std::string endpoint = fmt::format("ipc://@penstock-monitor-{}", getpid());
  server.bind(endpoint);
  zmq::socket_t client(elsewhere, ZMQ_PUSH);
  client.connect(endpoint);
  EXPECT_EQ(next_event(monitor).peer, fmt::format("process {} of user {}", getpid(), getuid()));
  client.send(zmq::str_buffer("hello"), zmq::send_flags::none);
  server.set(zmq::sockopt::rcvtimeo, 10000);
  zmq::message_t message;
  ASSERT_TRUE(server.recv(message));
  EXPECT_EQ(net::describe(net::sender_of(message.handle())), fmt::format("process {}", getpid()));
}

/// Peers that reconnect repeatedly under new names are counted, and the log stays short.
TEST_F(CurveSockets, ALogOfStrangersHasAnEnd) {
  zmq::context_t context;
  std::vector<std::string> said;
  int refused = 0;
  net::SocketSecurity security(context.handle(),
                               {.role = net::CurveSetup::Role::server,
                                .own = net::make_curve_keys(),
                                .admission = {.keys = {}}},
                               {.refused = [&] { ++refused; },
                                .say = [&](const std::string& text) { said.push_back(text); }});
  for (int i = 0; i < 50; ++i) {
    for (int again = 0; again < 2; ++again) {
      security.see_at_listener({.kind = net::ConnectionEvent::Kind::ended,
                                .peer = fmt::format("10.0.0.{}", i),
                                .fault = net::HandshakeFault::key});
    }
  }
  EXPECT_EQ(refused, 100);
  EXPECT_EQ(security.refused(), 100);
  ASSERT_EQ(said.size(), 17U);
  EXPECT_TRUE(says(said[0], "refused 10.0.0.0: "));
  EXPECT_TRUE(says(said[16], "further refused peers"));
}

}  // namespace
}  // namespace penstock
