// SPDX-License-Identifier: Apache-2.0
// zmq-consume with CURVE keys and producers of libzmq and pyzmq: who is admitted, and what happens
// to refused or misbehaving producers.
#include <gtest/gtest.h>

#include "bench/run/processes/child_process.h"
#include "dataflow/net/certificate.h"
#include "dataflow/net/curve_setup.h"
#include "feeders/remote/send/sender.h"
#include "tests/feeders/remote/credit_fixture.h"
#include "tests/feeders/remote/sender_fixture.h"
#include "tests/support/python.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// A PUSH socket, with or without keys.
class KeyedProducer {
 public:
  KeyedProducer(const std::string& endpoint, const net::CurveKeys* own,
                const std::string& server_key) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndtimeo, 20000);
    socket_.set(zmq::sockopt::immediate, 1);
    if (own != nullptr) net::make_curve_client(socket_.handle(), *own, server_key);
    socket_.connect(endpoint);
  }
  void send(const std::vector<std::byte>& bytes) {
    ASSERT_TRUE(socket_.send(zmq::buffer(bytes), zmq::send_flags::none));
  }
  /// Is there no peer that would take a message?
  bool is_shut_out() { return (socket_.get(zmq::sockopt::events) & ZMQ_POLLOUT) == 0; }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, ZMQ_PUSH};
};

class ZmqCurve : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!net::has_curve()) GTEST_SKIP() << "this libzmq was built without CURVE";
    net::write_certificate(server_, folder_.path(), "server");
    net::write_certificate(alice_, folder_ / "allowed", "alice");
  }
  std::string server_options(const std::string& endpoint) const {
    const std::string folder = folder_.path().string();
    return "endpoint=" + endpoint + ",curve_secret=" + folder +
           "/server.key_secret,curve_allow=" + folder + "/allowed";
  }
  /// Does a note with this text appear?
  static bool is_noted(const Consumer& consumer, const std::string& text) {
    if (await([&] { return says(consumer.all_notes(), text); })) return true;
    ADD_FAILURE() << consumer.all_notes();
    return false;
  }
  TempFolder folder_;
  const net::CurveKeys server_ = net::has_curve() ? net::make_curve_keys() : net::CurveKeys{};
  const net::CurveKeys alice_ = net::has_curve() ? net::make_curve_keys() : net::CurveKeys{};
};

TEST_F(ZmqCurve, KeysOpenAddressesThatOtherMachinesReach) {
  RunningConsumer consumer(server_options("tcp://0.0.0.0:*"));
  KeyedProducer alice(consumer.address(), &alice_, server_.public_key);
  for (std::uint64_t i = 0; i < 3; ++i) alice.send(message_of(kSmall, i));
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(consumer.next(), i);
  EXPECT_EQ(consumer.counter("peers_refused"), 0);
}

TEST_F(ZmqCurve, StrangersAreNamedAndCountedWhileTheGoodStreamGoesOn) {
  RunningConsumer consumer(server_options("tcp://127.0.0.1:*"));
  const std::string endpoint = consumer.address();
  const net::CurveKeys stranger = net::make_curve_keys();
  KeyedProducer alice(endpoint, &alice_, server_.public_key);
  alice.send(message_of(kSmall, 0));
  KeyedProducer unknown(endpoint, &stranger, server_.public_key);
  KeyedProducer plain(endpoint, nullptr, "");
  KeyedProducer mistaken(endpoint, &alice_, stranger.public_key);
  EXPECT_EQ(consumer.next(), 0U);
  EXPECT_TRUE(is_noted(consumer, "refused 127.0.0.1: its key " + stranger.public_key));
  EXPECT_TRUE(is_noted(consumer, "no CURVE keys"));
  // It retries repeatedly: one try is seen before its connection has gone.
  EXPECT_TRUE(is_noted(consumer, "refused 127.0.0.1: it expects a server with another key"));
  EXPECT_GE(consumer.counter("peers_refused"), 3);
  alice.send(message_of(kSmall, 1));
  EXPECT_EQ(consumer.next(), 1U);
  for (KeyedProducer* const one : {&unknown, &plain, &mistaken}) EXPECT_TRUE(one->is_shut_out());
  // A producer that retries repeatedly is not named each time.
  EXPECT_LE(consumer.notes().size(), 8U) << consumer.all_notes();
}

TEST_F(ZmqCurve, AnybodyWithTheServersKeyMayComeWhereTheUserSaysSo) {
  RunningConsumer consumer("endpoint=tcp://127.0.0.1:*,curve_allow=any,curve_secret=" +
                           (folder_ / "server.key_secret").string());
  const net::CurveKeys stranger = net::make_curve_keys();
  KeyedProducer producer(consumer.address(), &stranger, server_.public_key);
  producer.send(message_of(kSmall, 5));
  EXPECT_EQ(consumer.next(), 5U);
}

TEST_F(ZmqCurve, AProducerOfPyzmqComesInWithItsOwnCertificate) {
  if (!python_has("zmq.auth")) GTEST_SKIP() << "no pyzmq; install python3-zmq";
  const std::string script =
      "import sys, zmq, zmq.auth\n"
      "endpoint, certificate, server, data = sys.argv[1:]\n"
      "context = zmq.Context()\n"
      "socket = context.socket(zmq.PUSH)\n"
      "socket.linger, socket.sndtimeo = 20000, 20000\n"
      "keys = zmq.auth.load_certificate(certificate)\n"
      "socket.curve_publickey, socket.curve_secretkey = keys\n"
      "socket.curve_serverkey = zmq.auth.load_certificate(server)[0]\n"
      "socket.connect(endpoint)\n"
      "socket.send(open(data, 'rb').read())\n"
      "socket.close()\n"
      "context.term()\n";
  run_python("import sys, zmq.auth\nzmq.auth.create_certificates(sys.argv[1], 'bob')\n",
             {folder_ / "allowed"});
  folder_.write("batch", message_of(kSmall, 7));
  RunningConsumer consumer(server_options("tcp://127.0.0.1:*"));
  run_python(script, {consumer.address(), folder_ / "allowed/bob.key_secret",
                      folder_ / "server.key", folder_ / "batch"});
  EXPECT_EQ(consumer.next(), 7U);
}

/// A client that is admitted and sends invalid messages is disconnected, and stays banned.
TEST_F(ZmqCurve, AClientThatMisbehavesIsBanned) {
  net::write_certificate(net::make_curve_keys(), folder_ / "allowed", "unused");
  const net::CurveKeys bob = net::make_curve_keys();
  net::write_certificate(bob, folder_ / "allowed", "bob");
  RunningConsumer consumer(server_options("tcp://127.0.0.1:*"), 20s, kSkip);
  const std::string endpoint = consumer.address();
  KeyedProducer mad(endpoint, &bob, server_.public_key);
  KeyedProducer alice(endpoint, &alice_, server_.public_key);
  for (int i = 0; i < 8; ++i) mad.send(std::vector<std::byte>(100, std::byte{0xff}));
  ASSERT_TRUE(reaches(consumer, "producers_cut_off", 1)) << consumer.all_notes();
  ASSERT_TRUE(reaches(consumer, "peers_refused", 1)) << consumer.all_notes();
  EXPECT_TRUE(mad.is_shut_out());
  alice.send(message_of(kSmall, 4));
  EXPECT_EQ(consumer.next(), 4U);
  EXPECT_EQ(consumer.counter("messages_rejected"), 8);
  const std::string notes = consumer.all_notes();
  EXPECT_TRUE(says(notes, "cut off 127.0.0.1 with key " + bob.public_key));
}

/// Without keys, it may return and is disconnected again.
TEST_F(ZmqCurve, AProducerThatMisbehavesIsCutOffAndNamed) {
  const std::string endpoint = "ipc://" + (folder_ / "feed").string();
  RunningConsumer consumer("endpoint=" + endpoint, 20s, kSkip);
  Producer mad(endpoint, false);
  for (int i = 0; i < 8; ++i) mad.send(std::vector<std::byte>(100, std::byte{0xff}));
  ASSERT_TRUE(reaches(consumer, "producers_cut_off", 1)) << consumer.all_notes();
  const std::string notes = consumer.all_notes();
  EXPECT_TRUE(says(notes, "cut off process " + std::to_string(::getpid())));
  mad.send(message_of(kSmall, 3));
  EXPECT_EQ(consumer.next(), 3U);
}

class ZmqCurveConnecting : public ZmqCurve {
 protected:
  /// A producer that binds as a CURVE server, or in plain text.
  std::string bind_producer(bool keys) {
    producer_.set(zmq::sockopt::linger, 0);
    if (keys) {
      gate_.emplace(context_.handle(), net::Admission{.keys = {alice_.public_key}});
      gate_->guard(producer_.handle(), server_);
    }
    producer_.bind("tcp://127.0.0.1:*");
    return producer_.get(zmq::sockopt::last_endpoint);
  }
  std::string client_options(const std::string& endpoint, const net::CurveKeys& own,
                             const std::string& server_file) {
    const std::string name = "own" + std::to_string(++certificates_);
    const std::string secret = net::write_certificate(own, folder_.path(), name).secret_file;
    return "bind=false,endpoint=" + endpoint + ",curve_secret=" + secret +
           ",curve_server_key=" + (folder_ / server_file).string();
  }
  /// The error that ends a consumer long before its timeout.
  static std::string failure_of(const std::string& options) {
    RunningConsumer consumer(options, 10min);
    return thrown_by<ConfigError>([&] { consumer.next(); });
  }

  int certificates_ = 0;
  zmq::context_t context_;
  std::optional<net::CurveGate> gate_;
  zmq::socket_t producer_{context_, ZMQ_PUSH};  // closes before the gate
};

TEST_F(ZmqCurveConnecting, AConsumerMayBeTheClient) {
  const std::string endpoint = bind_producer(true);
  RunningConsumer consumer(client_options(endpoint, alice_, "server.key"));
  ASSERT_TRUE(producer_.send(zmq::buffer(message_of(kSmall, 2)), zmq::send_flags::none));
  EXPECT_EQ(consumer.next(), 2U);
}

TEST_F(ZmqCurveConnecting, ARefusedClientGivesUpAndSaysWhatToDo) {
  const std::string endpoint = bind_producer(true);
  const net::CurveKeys stranger = net::make_curve_keys();
  net::write_certificate(stranger, folder_.path(), "stranger");
  const std::string unknown = failure_of(client_options(endpoint, stranger, "server.key"));
  EXPECT_TRUE(says(unknown, "does not accept the key of this side, " + stranger.public_key));
  EXPECT_TRUE(says(unknown, "--curve-allow"));
  const std::string mistaken = failure_of(client_options(endpoint, alice_, "stranger.key"));
  EXPECT_TRUE(says(mistaken, "--curve-server-key"));
  const std::string plain = failure_of("bind=false,endpoint=" + endpoint);
  EXPECT_TRUE(says(plain, "only peers with CURVE keys"));
}

TEST_F(ZmqCurveConnecting, APeerWithoutKeysIsNotTalkedTo) {
  const std::string endpoint = bind_producer(false);
  const std::string text = failure_of(client_options(endpoint, alice_, "server.key"));
  // It may end each connection before this side has read its mechanism.
  EXPECT_TRUE(says(text, "it has no CURVE keys") || says(text, "check that it has CURVE keys"))
      << text;
}

/// By credit, through shared memory.
TEST_F(ZmqCurve, ProducersByCreditWithTheRightKeyComeInAndOthersAreTurnedAway) {
  net::write_certificate(net::make_curve_keys(), folder_.path(), "stranger");
  RunningConsumer consumer("credit=2," + server_options("tcp://127.0.0.1:*"));
  const auto keys = [&](const char* secret) {
    return net::read_curve({.secret = (folder_ / secret).string(),
                            .server_key = (folder_ / "server.key").string(),
                            .allow = {}});
  };
  const std::string endpoint = consumer.address();
  Server stranger(endpoint, false, Way::shared, 4, kSmall, keys("stranger.key_secret"));
  Server server(endpoint, false, Way::shared, 4, kSmall, keys("allowed/alice.key_secret"));
  for (Server* sending : {&stranger, &server}) {
    sending->feed(0);
    sending->start();
  }
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(consumer.next(), i);
  EXPECT_TRUE(reaches(consumer, "peers_refused", 1));
  EXPECT_EQ(consumer.counter("producers_welcomed"), 1);
  EXPECT_THROW(stranger.join(), ConfigError);  // it can never succeed
}

}  // namespace
}  // namespace penstock
