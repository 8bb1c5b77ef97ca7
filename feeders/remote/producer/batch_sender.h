// SPDX-License-Identifier: Apache-2.0
// Sends the messages of one producer in order: a hello, batches, an end.
//
// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "feeders/remote/producer/frame.h"
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

class BatchSender {
 public:
  /// All members throw Failure; a call that fails has sent nothing.
  explicit BatchSender(SenderOptions options);

  const std::string& address() const noexcept { return socket_.address(); }

  /// Work on the next batch begins now.
  void begin() noexcept;
  void send_pixels(std::span<const std::byte> pixels, const PixelShape& shape,
                   std::span<const std::int32_t> labels);
  /// Calls `release` when the pixels are no longer needed, on any thread.
  void lend_pixels(std::span<const std::byte> pixels, const PixelShape& shape,
                   std::span<const std::int32_t> labels, std::function<void()> release);
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
  void send(remote::FramedHeader header, std::vector<Frame> frames, SteadyTime deadline);
  void check_not_ended() const;
  void check_shape(const remote::FramedHeader& header);
  [[noreturn]] void nobody_takes() const;

  const SenderOptions options_;
  const std::uint64_t number_;  // number of this producer
  Outbox outbox_;               // libzmq's threads use it while the socket exists
  PushSocket socket_;
  std::int64_t begun_ns_ = 0;
  std::uint64_t batches_ = 0, images_ = 0;  // so far
  bool said_hello_ = false, ended_ = false;
  std::optional<remote::FramedHeader> shape_;  // of the first batch, which all others must match
};

}  // namespace penstock::producer
