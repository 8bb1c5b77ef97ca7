// SPDX-License-Identifier: Apache-2.0
// A frame of a message, and the count of messages that libzmq still holds.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

struct zmq_msg_t;

namespace penstock::producer {

/// Memory that libzmq borrows. One thread until it is handed over.
class Frame {
 public:
  /// `done` is called once, on any thread, when the bytes are no longer needed; never where the
  /// frame is not handed over. What it holds lives at least as long as the bytes are needed. Throws
  /// std::bad_alloc.
  Frame(const void* data, std::size_t bytes, std::function<void()> done);
  /// A frame with a copy.
  static Frame copy_of(std::span<const std::byte> bytes, std::function<void()> done = {});
  Frame(Frame&&) noexcept = default;
  Frame& operator=(Frame&&) noexcept = default;

  std::span<const std::byte> bytes() const noexcept;
  /// To be sent: libzmq's, or closed with the frame, and `done` called, whatever comes of it.
  zmq_msg_t* hand_over() noexcept;
  /// libzmq did not take it.
  void take_back() noexcept { holder_->handed_over = false; }

 private:
  struct Holder {
    std::function<void()> done;
    bool handed_over = false;
  };
  struct Close {
    void operator()(zmq_msg_t* message) const noexcept;
  };

  Holder* holder_;  // libzmq's
  std::unique_ptr<zmq_msg_t, Close> message_;
};

/// How many messages, and batches among them, libzmq has not passed on. Any thread.
class Outbox {
 public:
  void add(bool batch);
  void remove(bool batch);
  /// Blocks until nothing is left, at most until then; returns the batches that are.
  std::int64_t wait_until_empty(std::chrono::steady_clock::time_point deadline);

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::int64_t messages_ = 0, batches_ = 0;  // under mutex_
};

}  // namespace penstock::producer
