// SPDX-License-Identifier: Apache-2.0
// Bare ends of the credit protocol, which can do what Penstock's ends never do.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "dataflow/net/shared_memory/pool_listener.h"
#include "dataflow/net/shared_memory/shared_pool.h"
#include "feeders/remote/wire/framed.h"
#include "feeders/remote/wire/framed_texts.h"
#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/support/framed_messages.h"
#include "tests/support/message_puller.h"

namespace penstock {

/// A message as received; its views refer to its frames.
struct Heard {
  FrameList frames{};
  std::vector<std::span<const std::byte>> views{};
  remote::FramedMessage message{};
  std::string routing_id{};  // at a router
};

/// Returns none if no message came in time.
inline std::optional<Heard> hear(zmq::socket_t& socket, bool is_router = false,
                                 std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  socket.set(zmq::sockopt::rcvtimeo, static_cast<int>(limit.count()));
  Heard heard{.frames = received_frames(socket)};
  if (heard.frames.empty()) return std::nullopt;
  if (is_router) {
    const FrameBytes& id = heard.frames.front();
    heard.routing_id.assign(reinterpret_cast<const char*>(id.data()), id.size());
    heard.frames.erase(heard.frames.begin());
  }
  heard.views = views_of(heard.frames);
  heard.message = remote::parse_framed(heard.views);
  return heard;
}

inline void say(zmq::socket_t& socket, const FrameList& frames, const std::string& to = {}) {
  if (!to.empty()) {
    ASSERT_TRUE(socket.send(zmq::buffer(to), zmq::send_flags::sndmore));
  }
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const auto flags = i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
    ASSERT_TRUE(socket.send(zmq::buffer(frames[i]), flags));
  }
}

inline remote::FramedHello bare_hello(const std::string& boot = {}, const std::string& pool = {}) {
  return {.name = "bare", .host = {}, .boot = boot, .pool = pool};
}

/// The end of a producer of batches of kSmall.
inline FrameList end_message(std::uint64_t batches, std::uint64_t producer = 7) {
  remote::FramedHeader header = header_of(remote::FramedKind::end, producer);
  header.sequence = batches;
  header.images_before = batches * static_cast<std::uint64_t>(kSmall.images);
  return framed_message(header, {});
}

/// A DEALER that sends whatever a test wants.
class BareProducer {
 public:
  /// `routing_id`: kept across connections; empty: the consumer chooses one.
  explicit BareProducer(const std::string& endpoint, std::uint64_t number = 7,
                        const std::string& routing_id = {})
      : number_(number) {
    if (!routing_id.empty()) socket_.set(zmq::sockopt::routing_id, routing_id);
    // Two sockets with the same routing id would take it from each other.
    if (!routing_id.empty()) socket_.set(zmq::sockopt::reconnect_ivl, -1);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndtimeo, 20000);
    socket_.connect(endpoint);
  }

  remote::FramedHeader hello_header() const {
    remote::FramedHeader header = pixels_header(kSmall, number_);
    header.kind = remote::FramedKind::hello;
    header.sent_ns = remote::wall_clock_ns();
    return header;
  }
  void send_hello(const remote::FramedHello& hello = bare_hello()) {
    send_hello(hello_header(), hello);
  }
  void send_hello(const remote::FramedHeader& header,
                  const remote::FramedHello& hello = bare_hello()) {
    send(framed_message(header, {bytes_of_text(remote::write_framed_hello(hello))}));
  }
  /// Says hello, and waits for this many credits.
  void enter(std::uint64_t credits, const remote::FramedHello& hello = bare_hello()) {
    send_hello(hello);
    await_welcome();
    await_credit(credits);
  }
  /// Skips messages for an earlier producer with the same routing id.
  void await_welcome() {
    std::optional<Heard> heard;
    do {
      heard = hear_any();
      ASSERT_TRUE(heard.has_value()) << "no welcome in time";
    } while (heard->message.header.kind != remote::FramedKind::welcome);
    credit_ = 0;
  }
  void await_credit(std::uint64_t credits) {
    while (credit_ < credits) {
      const std::optional<Heard> heard = hear_any();
      ASSERT_TRUE(heard.has_value()) << "no credit in time; have " << credit_;
    }
  }
  /// The two frames of a batch of the closed-form set.
  static FrameList payload_of(std::uint64_t index) {
    FrameList frames{FrameBytes(kSmall.pixel_bytes()), FrameBytes(kSmall.label_bytes())};
    std::vector<std::int32_t> labels(static_cast<std::size_t>(kSmall.images));
    fill_closed_form({.pixels = frames[0], .labels = labels}, kSmall, index);
    std::memcpy(frames[1].data(), labels.data(), frames[1].size());
    return frames;
  }
  remote::FramedHeader batch_header(std::uint64_t sequence) const {
    remote::FramedHeader header = pixels_header(kSmall, number_, sequence);
    header.sent_ns = remote::wall_clock_ns();
    return header;
  }
  void send_batch(std::uint64_t sequence) {
    send(framed_message(batch_header(sequence), payload_of(sequence)));
  }
  /// Sends this many batches, each when there is a credit for it.
  void send_batches(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      await_credit(i + 1);
      send_batch(i);
    }
  }
  void lend(std::uint64_t sequence, const remote::FramedLease& lease) {
    remote::FramedHeader header = batch_header(sequence);
    header.flags = remote::kFramedShared;
    send(framed_message(header, {lease_frame(lease)}));
  }
  void send(const FrameList& frames) { say(socket_, frames); }

  /// The next message; records leases and credits. None: nothing came in time.
  std::optional<Heard> hear_any(std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    std::optional<Heard> heard = hear(socket_, false, limit);
    if (heard && heard->message.header.kind == remote::FramedKind::credit) {
      credit_ = heard->message.header.sequence;
      for (const std::uint64_t lease : remote::framed_credit_leases(heard->message)) {
        returned_.push_back(lease);
      }
    }
    return heard;
  }
  /// The reason of the refusal; skips credits.
  std::string hear_refusal() {
    while (const std::optional<Heard> heard = hear_any()) {
      if (heard->message.header.kind == remote::FramedKind::refusal) {
        return remote::parse_framed_refusal(heard->message);
      }
    }
    return "nothing was heard";
  }
  /// Sent messages leave before the socket closes.
  void linger() { socket_.set(zmq::sockopt::linger, 20000); }
  std::uint64_t credit() const { return credit_; }
  const std::vector<std::uint64_t>& returned() const { return returned_; }
  /// Waits until as many leases have come back; false: others came, or none in time.
  bool returns(std::size_t leases) {
    while (returned_.size() < leases) {
      if (!hear_any()) return false;
    }
    return returned_.size() == leases;
  }

 private:
  const std::uint64_t number_;
  std::uint64_t credit_ = 0;
  std::vector<std::uint64_t> returned_;
  zmq::context_t context_;
  zmq::socket_t socket_{context_, ZMQ_DEALER};
};

/// A producer's pool with arbitrary contents, and leases of closed-form batches in it.
class BarePool {
 public:
  explicit BarePool(std::size_t slots = 4) : pool_(4096, slots), listener_(pool_.fd(), geteuid()) {}
  remote::FramedHello hello() const { return bare_hello(remote::boot_id(), listener_.name()); }
  remote::FramedLease fill(std::uint64_t index, std::size_t slot, std::uint64_t number) {
    const FrameBytes bytes = shared_bytes(BareProducer::payload_of(index));
    std::memcpy(pool_.slot(slot).data(), bytes.data(), bytes.size());
    return {.lease = number, .offset = 4096 * slot, .bytes = bytes.size()};
  }
  const net::SharedPool& pool() const { return pool_; }

 private:
  net::SharedPool pool_;
  net::PoolListener listener_;
};

/// A producer that lends batches of a pool, and has two credits.
class Lender : public BarePool, public BareProducer {
 public:
  explicit Lender(const std::string& endpoint, std::size_t slots = 4, std::uint64_t number = 7)
      : BarePool(slots), BareProducer(endpoint, number) {
    enter(2, hello());
  }
};

/// A ROUTER that sends whatever a test wants.
class BareConsumer {
 public:
  explicit BareConsumer(const std::string& endpoint, bool binds = true) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndtimeo, 20000);
    binds ? socket_.bind(endpoint) : socket_.connect(endpoint);
  }
  /// Waits for a message of this kind.
  Heard await(remote::FramedKind kind) {
    while (std::optional<Heard> heard = hear(socket_, true)) {
      peer_ = heard->routing_id;
      producer_ = heard->message.header.producer;
      if (heard->message.header.kind == kind) return std::move(*heard);
    }
    ADD_FAILURE() << "no " << to_string(kind) << " came in time";
    return {};
  }
  /// `ahead_ns`: how far its clock is ahead.
  void welcome(const Heard& hello, const BatchSpec& spec = kSmall, std::int64_t ahead_ns = 0) {
    const std::string text = remote::write_framed_welcome({.images = spec.images,
                                                           .height = spec.image.height,
                                                           .width = spec.image.width,
                                                           .channels = spec.image.channels,
                                                           .classes = spec.classes,
                                                           .boot = {}});
    remote::FramedHeader header = header_of(remote::FramedKind::welcome, producer_);
    header.begun_ns = hello.message.header.sent_ns;
    header.ready_ns = header.sent_ns = remote::wall_clock_ns() + ahead_ns;
    send(framed_message(header, {bytes_of_text(text)}));
  }
  void credit(std::uint64_t total, const std::vector<std::uint64_t>& leases = {}) {
    remote::FramedHeader header = header_of(remote::FramedKind::credit, producer_);
    header.sequence = total;
    FrameList payload;
    if (!leases.empty()) payload.push_back(bytes_of_list(std::span<const std::uint64_t>(leases)));
    send(framed_message(header, std::move(payload)));
  }
  void send(const FrameList& frames) { say(socket_, frames, peer_); }
  std::uint64_t producer() const { return producer_; }

 private:
  std::string peer_;
  std::uint64_t producer_ = 0;
  zmq::context_t context_;
  zmq::socket_t socket_{context_, ZMQ_ROUTER};
};

/// Does a counter reach a value within some seconds?
inline bool reaches(const Consumer& consumer, const std::string& counter, std::int64_t value) {
  return await([&] { return consumer.counter(counter) >= value; });
}

inline constexpr BadSamplePolicy kSkip{.action = BadSamplePolicy::Action::skip};

class CreditConsume : public ZmqConsume {
 protected:
  std::string options(const std::string& more = {}) const {
    return "credit=2,endpoint=" + endpoint() + more;
  }
  /// The consumer's connections, as the kernel counts them.
  std::size_t connections() const {
    constexpr std::string_view kConnected = " 03 ";  // state, in the line of its socket
    std::ifstream sockets("/proc/net/unix");
    std::size_t count = 0;
    for (std::string line; std::getline(sockets, line);) {
      count += line.ends_with(" " + file()) && says(line, kConnected);
    }
    return count;
  }
};

}  // namespace penstock
