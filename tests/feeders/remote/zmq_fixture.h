// SPDX-License-Identifier: Apache-2.0
// Real sockets for tests: a temporary folder for their files, a zmq-consume feeder with its ring,
// and bare producers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "feeders/feeder.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/wire/zmq_op.h"
#include "tests/support/patience.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {

inline constexpr BatchSpec kSmall{.images = 4, .image = {5, 6, 3}, .classes = 100};

/// Batch `index` of a finite, closed-form set: every pixel is a function of its image's number.
inline std::byte pixel_of(std::uint64_t image) { return static_cast<std::byte>(image * 7 + 1); }
inline std::int32_t label_of(std::uint64_t image) { return static_cast<std::int32_t>(image % 100); }

inline void fill_closed_form(const Batch& batch, const BatchSpec& spec, std::uint64_t index) {
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    const std::uint64_t image = index * batch.labels.size() + i;
    std::memset(batch.pixels.data() + i * spec.row_bytes(), static_cast<int>(pixel_of(image)),
                spec.row_bytes());
    batch.labels[i] = label_of(image);
  }
}

/// The message of batch `index`.
inline std::vector<std::byte> message_of(const BatchSpec& spec, std::uint64_t index) {
  const remote::BatchLayout layout(spec, spec.images);
  std::vector<std::byte> bytes(layout.size());
  std::vector<std::int32_t> labels(static_cast<std::size_t>(spec.images));
  const auto pixels = std::span(bytes).subspan(remote::BatchLayout::kPixelsAt, spec.pixel_bytes());
  fill_closed_form({.pixels = pixels, .labels = labels}, spec, index);
  std::memcpy(bytes.data() + layout.labels_at(), labels.data(), spec.label_bytes());
  layout.write_headers(bytes);
  return bytes;
}

/// No message of any format.
inline std::vector<std::byte> rubbish() { return std::vector<std::byte>(7, std::byte{0x42}); }

/// The ring that a Consumer fills.
struct ConsumerRing {
  std::size_t slots = 2;
  Order order = Order::relaxed;
  BatchSpec spec = kSmall;
  bool accepts_foreign = false;
  Device* device = nullptr;  // device that reads the ring; null: copies take no time
};

/// A zmq-consume feeder on a separate thread, and the ring that it fills.
class Consumer {
 public:
  explicit Consumer(const std::string& options,
                    std::chrono::milliseconds timeout = std::chrono::seconds(20),
                    BadSamplePolicy policy = {}, ConsumerRing ring = {})
      : entry_(find_entry(feeder_table(), "zmq-consume")),
        options_("zmq-consume", entry_.options, parse_component("zmq-consume:" + options)),
        spec_(ring.spec),
        reader_(ring.device != nullptr ? ring.device : &device_),
        ring_(spec_, ring.slots, device_, MemoryKind::pinned, std::span(&reader_, 1), ring.order,
              clock_) {
    if (ring.accepts_foreign) ring_.accept_foreign();
    DataPlan data;
    data.order = ring.order;
    feeder_ = entry_.make(FeederContext{.spec = spec_,
                                        .device = *reader_,
                                        .clock = clock_,
                                        .options = options_,
                                        .data = data,
                                        .probe = probe_,
                                        .on_bad_sample = policy,
                                        .timeout = timeout,
                                        .slots = static_cast<std::int32_t>(ring.slots)});
  }
  ~Consumer() { stop(); }

  void start() {
    thread_ = std::jthread([this] { run_to_end(*feeder_, ring_, stop_.get_token()); });
  }
  /// Ends the feeder and returns how long that took.
  std::chrono::nanoseconds stop() {
    const auto asked = std::chrono::steady_clock::now();
    if (thread_.joinable()) {
      stop_.request_stop();
      thread_.join();
    }
    return std::chrono::steady_clock::now() - asked;
  }

  /// The number of the next batch, from its first label; checks the contents. None: the end of the
  /// data. Rethrows the feeder's exception.
  std::optional<std::uint64_t> next() {
    const ReadLease lease = ring_.next(0, {});
    if (!lease) return std::nullopt;
    const Batch& batch = lease.batch();
    EXPECT_EQ(batch.valid, spec_.images);
    const auto first = static_cast<std::uint64_t>(batch.labels[0]);
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      EXPECT_EQ(batch.labels[i], label_of(first + i));
    }
    return first / static_cast<std::uint64_t>(spec_.images);
  }

  std::int64_t counter(const std::string& name) const { return probe_.values().at(name); }
  bool has_counter(const std::string& name) const { return probe_.values().contains(name); }
  /// Whether every sent image was received or refused or is missing.
  bool adds_up() const {
    return counter("images_sent") ==
           counter("images_received") + counter("images_rejected") + counter("images_missing");
  }
  double fact(const std::string& name) const { return probe_.facts().at(name); }
  std::map<std::string, double> facts() const { return probe_.facts(); }
  /// Without the note about waiting messages.
  std::vector<std::string> notes() const {
    std::vector<std::string> notes = probe_.notes();
    std::erase_if(notes, is_of_waiting);
    return notes;
  }
  std::string all_notes() const {
    std::string text;
    for (const std::string& note : notes()) text += note + "\n";
    return text;
  }
  /// Where it listens on this machine, with the port that libzmq chose.
  std::string address() const {
    const std::string note = notes().at(0);
    return "tcp://127.0.0.1" + note.substr(note.rfind(':'));
  }
  std::string note_of_waiting() const {
    const std::vector<std::string> notes = probe_.notes();
    return *std::find_if(notes.begin(), notes.end(), is_of_waiting);
  }
  /// A stage that runs in this process.
  const StageCounters& stage(std::size_t number) const {
    for (const StageCounters& stage : probe_.stages()) {
      if (!is_outside(stage.stage.role) && number-- == 0) return stage;
    }
    throw std::out_of_range("no such stage");
  }
  BatchRing& ring() { return ring_; }
  std::int64_t outside_reserve() const { return entry_.outside_reserve(options_, spec_); }
  void window_begins() { feeder_->settle(); }
  /// Ends the feeder and its members.
  void destroy() {
    stop();
    feeder_.reset();
  }

 private:
  static bool is_of_waiting(const std::string& note) {
    return note.find(" wait outside the ring: ") != std::string::npos;
  }

  const FeederEntry& entry_;
  const Options options_;
  const BatchSpec spec_;
  SteadyClock clock_;
  Probe probe_;
  HostDevice device_{clock_};
  Device* const reader_;
  BatchRing ring_;
  std::unique_ptr<Feeder> feeder_;
  std::stop_source stop_;
  std::jthread thread_;
};

/// A consumer that works from the start.
class RunningConsumer : public Consumer {
 public:
  explicit RunningConsumer(const std::string& options,
                           std::chrono::milliseconds timeout = std::chrono::seconds(20),
                           BadSamplePolicy policy = {}, ConsumerRing ring = {})
      : Consumer(options, timeout, policy, ring) {
    start();
  }
};

/// A bare PUSH socket.
class Producer {
 public:
  Producer(const std::string& endpoint, bool bind) {
    socket_.set(zmq::sockopt::linger, 5000);
    socket_.set(zmq::sockopt::sndtimeo, 20000);
    bind ? socket_.bind(endpoint) : socket_.connect(endpoint);
  }
  void send(const std::vector<std::byte>& bytes, bool more = false) {
    ASSERT_TRUE(
        socket_.send(zmq::buffer(bytes), more ? zmq::send_flags::sndmore : zmq::send_flags::none));
  }
  /// All frames of a message.
  void send(const std::vector<std::vector<std::byte>>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) send(frames[i], i + 1 < frames.size());
  }

  /// Blocks until a peer would take a message, at most 20 s.
  void await_peer() {
    zmq::pollitem_t item{socket_.handle(), 0, ZMQ_POLLOUT, 0};
    EXPECT_EQ(zmq::poll(&item, 1, std::chrono::seconds(20)), 1);
  }
  /// Unsent messages are dropped at the end.
  void abandon() { socket_.set(zmq::sockopt::linger, 0); }
  /// Gives up if no peer takes it within a moment.
  void try_send(const std::vector<std::byte>& bytes) {
    zmq::pollitem_t item{socket_.handle(), 0, ZMQ_POLLOUT, 0};
    zmq::poll(&item, 1, std::chrono::milliseconds(20));
    static_cast<void>(socket_.send(zmq::buffer(bytes), zmq::send_flags::dontwait));
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, ZMQ_PUSH};
};

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

/// Is batch `index` next? False on a timeout of the consumer.
inline bool comes(Consumer& consumer, std::uint64_t index) {
  try {
    EXPECT_EQ(consumer.next(), index);
    return true;
  } catch (const TimeoutError&) {
    return false;
  }
}

class ZmqConsume : public ::testing::Test {
 protected:
  std::string file() const { return folder_.path().string() + "/feed"; }
  std::string endpoint() const { return "ipc://" + file(); }

  TempFolder folder_;
};

}  // namespace penstock
