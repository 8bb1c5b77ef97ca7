// SPDX-License-Identifier: Apache-2.0
// One message from a socket: its frames in libzmq's memory, and its sender. Also tunes the memory
// that messages of batches pass through: kernel buffers and this process's heap.
//
// Thread-safety: one thread at a time; it may differ from the thread that owns the socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataflow/net/socket_security.h"
#include "feeders/remote/wire/batch_message.h"

namespace penstock::remote {

/// One object serves many messages, without allocation.
class ZmqMessage {
 public:
  ZmqMessage();
  ~ZmqMessage();

  /// Receives the next message as a whole; false: there is none now. If it has more frames than a
  /// batch can have, the rest is dropped.
  bool receive(void* socket);
  /// Valid until clear() or the next receive(). Throws DataError if frames were dropped.
  MessageFrames frames() const;
  /// Like frames(), but does not throw: without dropped frames.
  MessageFrames kept_frames() const noexcept;
  /// Of all frames, including dropped ones.
  std::int64_t bytes() const noexcept { return bytes_; }
  net::MessageSender sender() const;
  /// File descriptor of the connection that it came by; -1: none.
  int connection() const;
  /// Gives the memory back to libzmq.
  void clear();

  // The receiver sets these:
  std::int64_t number = 0;   ///< among all messages, from 1
  std::size_t endpoint = 0;  ///< index of the endpoint that it came by

 private:
  struct Frames;
  std::unique_ptr<Frames> frames_;
  std::array<std::span<const std::byte>, kMaxMessageFrames> views_;  // of frames_
  std::size_t count_ = 0;
  std::int64_t bytes_ = 0;
};

/// Size of the kernel's send buffer for a connection that carries batches, in bytes.
inline constexpr std::int64_t kSendBuffer = std::int64_t{1} << 20;

/// Lets the kernel hold `bytes` of unread data on a connection between processes of this machine,
/// within the limit net.core.wmem_max. The default buffer, 208 KiB, wakes both sides dozens of
/// times per batch. Never shrinks a buffer. Does nothing for other descriptors: TCP buffers grow on
/// their own unless a program sets their size.
void enlarge_send_buffer(int connection, std::int64_t bytes) noexcept;

/// Makes glibc keep the pages of freed messages of `bytes` for later messages. By default it
/// returns them to the kernel, and new pages of zeros cost a page fault per 4 KiB of each message
/// above 32 MiB, and of some smaller ones. Permanent, for the whole process.
void keep_message_memory(std::size_t bytes) noexcept;

}  // namespace penstock::remote
