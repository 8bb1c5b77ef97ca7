// SPDX-License-Identifier: Apache-2.0
// The messages of one producer, in their order: a hello, batches, an end.
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

#include "dataflow/wire/framed_header.h"
#include "producer/frame.h"
#include "producer/push_socket.h"

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
  /// All members throw Failure; what fails has not been sent.
  explicit BatchSender(SenderOptions options);

  const std::string& address() const noexcept { return socket_.address(); }

  /// Work on the next batch begins.
  void begin() noexcept;
  void send_pixels(std::span<const std::byte> pixels, const PixelShape& shape,
                   std::span<const std::int32_t> labels);
  /// `release`: the pixels are no longer needed. On any thread.
  void lend_pixels(std::span<const std::byte> pixels, const PixelShape& shape,
                   std::span<const std::int32_t> labels, std::function<void()> release);
  void send_jpegs(std::span<const std::span<const std::byte>> files,
                  std::span<const std::int32_t> labels);
  void end();

  /// Waits until consumers have what was sent, and closes the socket. Returns how many batches are
  /// known not to have arrived. Nothing else may follow.
  std::int64_t close(std::chrono::milliseconds timeout);

 private:
  void send_batch(FramedHeader header, std::vector<Frame> frames,
                  std::span<const std::int32_t> labels);
  void say_hello(const FramedHeader& of_batch, SteadyTime deadline);
  void send(FramedHeader header, std::vector<Frame> frames, SteadyTime deadline);
  void check_not_ended() const;
  void check_shape(const FramedHeader& header);
  [[noreturn]] void nobody_takes() const;

  const SenderOptions options_;
  const std::uint64_t number_;  // of this producer
  Outbox outbox_;               // libzmq's threads use it while there is a socket
  PushSocket socket_;
  std::int64_t begun_ns_ = 0;
  std::uint64_t batches_ = 0, images_ = 0;  // so far
  bool said_hello_ = false, ended_ = false;
  std::optional<FramedHeader> shape_;  // of all batches: the first one's
};

}  // namespace penstock::producer
