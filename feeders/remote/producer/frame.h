// SPDX-License-Identifier: Apache-2.0
// A frame of a message, and a counter of messages that libzmq still holds.
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

/// Memory that libzmq borrows. Only one thread may use it until it is handed over.
class Frame {
 public:
  /// `done` is called once, on any thread, when the bytes are no longer needed; never if the frame
  /// is not handed over. What `done` captures lives at least that long. Throws std::bad_alloc.
  Frame(const void* data, std::size_t bytes, std::function<void()> done);
  /// A frame with a copy of the bytes.
  static Frame copy_of(std::span<const std::byte> bytes, std::function<void()> done = {});
  Frame(Frame&&) noexcept = default;
  Frame& operator=(Frame&&) noexcept = default;

  std::span<const std::byte> bytes() const noexcept;
  /// Hands the frame to libzmq for sending. From then on `done` is called, even if the frame is
  /// only closed.
  zmq_msg_t* hand_over() noexcept;
  /// Call if libzmq did not accept the frame.
  void take_back() noexcept { holder_->handed_over = false; }

 private:
  struct Holder {
    std::function<void()> done;
    bool handed_over = false;
  };
  struct Close {
    void operator()(zmq_msg_t* message) const noexcept;
  };

  Holder* holder_;  // owned by libzmq
  std::unique_ptr<zmq_msg_t, Close> message_;
};

/// Counts messages, and batches among them, that libzmq has not passed on. Any thread.
class Outbox {
 public:
  void add(bool batch);
  void remove(bool batch);
  /// Blocks until nothing is left, or until the deadline. Returns the number of batches left.
  std::int64_t wait_until_empty(std::chrono::steady_clock::time_point deadline);

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::int64_t messages_ = 0, batches_ = 0;  // under mutex_
};

}  // namespace penstock::producer
