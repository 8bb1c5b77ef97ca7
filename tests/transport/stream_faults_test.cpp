// SPDX-License-Identifier: Apache-2.0
// Peers on a TCP port that speak no ZMTP, stop in the middle of it, or announce too much, while a
// good producer sends: nothing of theirs becomes a batch, and the good stream goes on to its end.
#include <random>

#include "dataflow/net/certificate.h"
#include "tests/support/text_bytes.h"
#include "tests/transport/feed.h"
#include "tests/transport/raw_producer.h"
#include "tests/transport/tcp.h"

namespace penstock::transport {
namespace {

class ZmqStreamFaults : public ::testing::Test {
 protected:
  static constexpr std::int32_t kGood = 30;

  int port() const { return port_of(feed_.address()); }

  /// Has the fault happen while a good producer sends; `more` messages of others come as well, all
  /// good.
  void run(const std::function<void()>& fault, std::int64_t more = 0) {
    const GoodStream good(feed_.address(), kGood, Format::zmq_op, kTiny);
    feed_.read(5, accounts_);
    fault();
    feed_.read(kGood - 5 + more, accounts_);
    feed_.stop();
    accounts_.expect_once(0, 0, kGood);
    EXPECT_TRUE(may_be_messages_ || feed_.counter("messages_rejected") == 0) << feed_.all_notes();
    EXPECT_EQ(feed_.counter("messages_received"),
              kGood + more + feed_.counter("messages_rejected"));
    EXPECT_EQ(feed_.counter("images_received"), (kGood + more) * kTiny.images);
  }
  /// A peer that says that much and then nothing, and another that goes at once.
  void say(const Bytes& bytes) {
    open_.push_back(TcpSocket::connected_to(port()));
    open_.back().send(bytes);
    TcpSocket::connected_to(port()).send(bytes);
  }

  Feed feed_{"hwm=2,endpoint=tcp://127.0.0.1:*"};
  Ledger accounts_;
  std::vector<TcpSocket> open_;
  bool may_be_messages_ = false;  // what is said by those who say what they like
};

/// The hand-written ZMTP of the tests below is what libzmq speaks.
TEST_F(ZmqStreamFaults, NoneWithZmtpByHand) {
  ZmtpClient client(port());
  run(
      [&] {
        client.shake_hands();
        client.send_frame(message_of(Format::zmq_op, kTiny, {1, 0})[0], false);
        const Message frames = message_of(Format::numpy_frames, kTiny, {1, 1});
        for (std::size_t i = 0; i < frames.size(); ++i) client.send_frame(frames[i], i < 2);
      },
      2);
  accounts_.expect_once(1, 0, 2);
}

/// What does not begin as ZMTP 2 does is ZMTP 1 to libzmq, where nearly all bytes are frames.
TEST_F(ZmqStreamFaults, RandomBytes) {
  may_be_messages_ = true;
  run([&] {
    std::mt19937 random(7);
    for (int i = 0; i < 10; ++i) {
      Bytes bytes(1 + random() % 8192);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      if (i % 2 == 1) bytes[0] = std::byte{0xff};  // as a greeting begins
      say(bytes);
    }
  });
}

TEST_F(ZmqStreamFaults, OtherProtocols) {
  may_be_messages_ = true;
  run([&] {
    for (const char* text : {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n",
                             "\x16\x03\x01\x02", "\n"}) {
      say(bytes_of_text(text));
    }
  });
}

TEST_F(ZmqStreamFaults, AGreetingCutShort) {
  run([&] {
    const Bytes greeting = ZmtpClient::greeting();
    for (const std::size_t bytes : {0U, 1U, 9U, 10U, 11U, 12U, 31U, 32U, 63U, 64U}) {
      say({greeting.begin(), greeting.begin() + static_cast<std::ptrdiff_t>(bytes)});
    }
  });
}

TEST_F(ZmqStreamFaults, AHandshakeCutShort) {
  run([&] {
    const Bytes ready = ZmtpClient::ready();
    for (std::size_t bytes = 1; bytes <= ready.size(); bytes += 7) {
      Bytes said = ZmtpClient::greeting();
      said.insert(said.end(), ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(bytes));
      say(said);
    }
  });
}

TEST_F(ZmqStreamFaults, AMessageCutInsideAFrame) {
  ZmtpClient silent(port()), gone(port());
  run([&] {
    const Bytes frame = message_of(Format::zmq_op, kTiny, {1, 0})[0];
    for (ZmtpClient* client : {&silent, &gone}) {
      client->shake_hands();
      client->send(ZmtpClient::frame_header(frame.size(), false));
      client->send(std::span(frame).first(frame.size() / 2));
    }
    gone.close();
  });
}

TEST_F(ZmqStreamFaults, AMultipartMessageCutInsideAndBetweenFrames) {
  ZmtpClient inside(port()), between(port()), silent(port());
  run([&] {
    const Message frames = message_of(Format::numpy_frames, kTiny, {1, 0});
    for (ZmtpClient* client : {&inside, &between, &silent}) {
      client->shake_hands();
      client->send_frame(frames[0], true);
    }
    inside.send(ZmtpClient::frame_header(frames[1].size(), true));
    inside.send(std::span(frames[1]).first(17));
    inside.close();
    between.send_frame(frames[1], true);
    between.close();
    silent.send_frame(frames[1], true);
  });
}

/// max_message bounds what is believed: nothing is allocated for more.
TEST_F(ZmqStreamFaults, AFrameThatAnnouncesAHugeSizeEndsTheConnection) {
  run([&] {
    for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{1} << 40,
                                      (std::uint64_t{1} << 63) - 1, ~std::uint64_t{0}}) {
      for (const bool more : {false, true}) {
        ZmtpClient client(port());
        client.shake_hands();
        client.send(ZmtpClient::frame_header(bytes, more));
        EXPECT_TRUE(client.await_end()) << bytes;
      }
    }
  });
}

TEST_F(ZmqStreamFaults, UnknownCommands) {
  std::vector<ZmtpClient> clients;
  run([&] {
    for (const unsigned flags : {0x04U, 0x05U, 0x06U, 0x84U, 0xf4U}) {
      clients.emplace_back(port());
      clients.back().shake_hands();
      Bytes command;
      Writer(command).big(flags, 1).big(8, (flags & 2) != 0 ? 8 : 1).big(7, 1).text("UNKNOWN");
      clients.back().send(command);
    }
  });
}

TEST_F(ZmqStreamFaults, PeersThatComeInAndSayNothing) {
  std::vector<ZmtpClient> clients;
  run([&] {
    for (int i = 0; i < 20; ++i) {
      clients.emplace_back(port());
      clients.back().shake_hands();
    }
  });
}

/// libzmq neither counts nor delivers the frames of an endless message, which fill the consumer's
/// memory.
TEST(ZmqFlood, FramesOfAMessageThatNeverEndsEndTheirConnection) {
  Feed feed("hwm=2,endpoint=tcp://127.0.0.1:*");
  ZmtpClient hostile(port_of(feed.address()));
  hostile.shake_hands();
  Bytes frame = ZmtpClient::frame_header(60'000, true);
  frame.resize(frame.size() + 60'000);
  constexpr int kMost = 20'000;  // 1.2 GB
  int sent = 0;
  while (sent < kMost && hostile.socket().send(frame)) ++sent;
  EXPECT_LT(sent, kMost) << "it may send as much as it likes";
  RawProducer honest(feed.address(), RawProducer::Side::connects);
  honest.send(message_of(Format::zmq_op, kTiny, {0, 3}));
  EXPECT_EQ(feed.next(), (BatchName{0, 3}));
  EXPECT_EQ(feed.counter("producers_cut_off"), 1);
  ASSERT_EQ(feed.notes().size(), 2U);
  EXPECT_TRUE(says(feed.notes()[1], "cut off 127.0.0.1 at tcp://127.0.0.1:*"));
}

/// ZMTP 1 knows no keys: an anonymous identity, and a message of one frame.
TEST(ZmqOldProtocol, FeedsARunWithoutKeysAndNoRunWithKeys) {
  if (!net::has_curve()) GTEST_SKIP() << "this libzmq was built without CURVE";
  const TempFolder folder;
  const std::string secret =
      net::write_certificate(net::make_curve_keys(), folder.path(), "server").secret_file.string();
  const Bytes batch = message_of(Format::zmq_op, kTiny, {1, 0})[0];
  Bytes said;
  Writer(said).big(1, 1).big(0, 1).big(0xff, 1).big(batch.size() + 1, 8).big(0, 1).bytes(batch);

  Feed open("endpoint=tcp://127.0.0.1:*");
  const TcpSocket to_open = TcpSocket::connected_to(port_of(open.address()));
  EXPECT_TRUE(to_open.send(said));
  EXPECT_EQ(open.next(), (BatchName{1, 0}));

  Feed locked("endpoint=tcp://127.0.0.1:*,curve_allow=any,curve_secret=" + secret);
  const TcpSocket to_locked = TcpSocket::connected_to(port_of(locked.address()));
  to_locked.send(said);
  EXPECT_TRUE(to_locked.await_end());
  locked.stop();
  EXPECT_EQ(locked.counter("messages_received"), 0);
}

/// A producer that closes its socket before the consumer reads. libzmq passes all of it to the
/// kernel first, and over tcp all of it arrives.
TEST(ZmqEarlyEnd, LosesNothingOverTcp) {
  constexpr std::int32_t kSent = 100;
  Feed feed("hwm=2,endpoint=tcp://127.0.0.1:*");
  GoodStream(feed.address(), kSent, Format::msgpack, kTiny);
  Ledger accounts;
  feed.read(kSent, accounts);
  accounts.expect_once(0, 0, kSent);
}

/// Over ipc what lies in the kernel behind a full pipe is lost: the last messages, whole ones only.
TEST(ZmqEarlyEnd, LosesAtMostTheLastMessagesOverIpc) {
  // All of them must fit into the kernel's buffers, where each may take a few kB if libzmq sends it
  // alone.
  constexpr std::int32_t kSent = 40;
  const TempFolder folder;
  const std::string endpoint = "ipc://" + (folder / "feed").native();
  Feed feed("hwm=2,endpoint=" + endpoint);
  GoodStream(endpoint, kSent, Format::msgpack, kTiny);
  RawProducer next(endpoint, RawProducer::Side::connects);
  next.send(message_of(Format::zmq_op, kTiny, {1, 0}));
  Ledger accounts;
  while (accounts.total_of(1) == 0) feed.read(1, accounts);
  const auto arrived = static_cast<std::int32_t>(accounts.total_of(0));
  accounts.expect_once(0, 0, arrived);
  EXPECT_EQ(feed.counter("messages_rejected"), 0) << feed.all_notes();
}

}  // namespace
}  // namespace penstock::transport
