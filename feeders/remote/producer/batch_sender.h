// SPDX-License-Identifier: Apache-2.0
// Sends the messages of one producer in order: a hello, batches, an end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "feeders/remote/producer/push_socket.h"
#include "feeders/remote/wire/framed_header.h"

namespace penstock::producer {

struct SenderOptions {
  PushOptions push;
  std::string name;  ///< for the hello
  bool checksum = false;
  std::chrono::milliseconds timeout{30'000};  ///< of each call
};

struct PixelShape {
  std::uint32_t images = 0, height = 0, width = 0, channels = 0;
};

/// What pixels are.
struct PixelKind {
  remote::FramedPixel type = remote::FramedPixel::u8;
  bool planar = false;
};

/// Counts messages, and batches among them, that libzmq has not passed on. Any thread.
class Outbox {
 public:
  void add(bool batch) {
    const std::lock_guard lock(mutex_);
    ++messages_;
    if (batch) ++batches_;
  }
  void remove(bool batch) {
    const std::lock_guard lock(mutex_);
    --messages_;
    if (batch) --batches_;
    if (messages_ == 0) empty_.notify_all();
  }
  /// Blocks until nothing is left, or until the deadline. Returns the number of batches left.
  std::int64_t wait_until_empty(SteadyTime deadline) {
    std::unique_lock lock(mutex_);
    empty_.wait_until(lock, deadline, [this] { return messages_ == 0; });
    return batches_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::int64_t messages_ = 0, batches_ = 0;  // under mutex_
};

/// One thread at a time.
class BatchSender {
 public:
  /// All members throw Failure; a call that fails has sent nothing.
  explicit BatchSender(SenderOptions options);

  const std::string& address() const noexcept { return socket_.address(); }

  std::size_t pixel_bytes() const noexcept;
  void set_pixels(const PixelKind& kind);

  /// Work on the next batch begins now.
  void begin() noexcept;

  /// Calls `release` when the pixels are no longer needed, on any thread. Empty: copies them.
  void send_pixels(std::span<const std::byte> pixels, const PixelShape& shape,
                   std::span<const std::int32_t> labels, std::function<void()> release = {});
  void send_jpegs(std::span<const std::span<const std::byte>> files,
                  std::span<const std::int32_t> labels);
  void end();

  /// Waits until consumers have received what was sent, and closes the socket. Returns how many
  /// batches are known to be undelivered. No other call may follow.
  std::int64_t close(std::chrono::milliseconds timeout);

 private:
  void send_batch(remote::FramedHeader header, std::vector<Frame> frames,
                  std::span<const std::int32_t> labels);
  void say_hello(const remote::FramedHeader& of_batch, SteadyTime deadline);
  /// The last frame removes the message from the outbox when libzmq has passed it on.
  void send(remote::FramedHeader header, std::vector<Frame> frames, SteadyTime deadline);
  void check_not_ended() const;
  /// Consumers refuse a producer whose batches change their shape.
  void check_shape(const remote::FramedHeader& header);
  [[noreturn]] void refuse_without_consumer() const;

  const SenderOptions options_;
  const std::uint64_t number_;  // number of this producer
  Outbox outbox_;               // libzmq's threads use it while the socket exists
  PushSocket socket_;
  std::int64_t begun_ns_ = 0, ready_ns_ = 0;  // of the batch that begin() announced; 0: none
  std::uint64_t batches_ = 0, images_ = 0;    // so far
  bool said_hello_ = false, ended_ = false;
  PixelKind kind_;
  std::optional<remote::FramedHeader> shape_;  // of the first batch, which all others must match
};

}  // namespace penstock::producer
