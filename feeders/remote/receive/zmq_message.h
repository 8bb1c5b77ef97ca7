// SPDX-License-Identifier: Apache-2.0
// One message off a socket, as it came: its frames in libzmq's memory, and who sent it.
//
// Thread-safety: one thread at a time, whichever thread the socket belongs to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataflow/wire/batch_message.h"
#include "dataflow/zmq_monitor.h"

namespace penstock {

/// Used for message after message: nothing is allocated for them.
class ZmqMessage {
 public:
  ZmqMessage();
  ~ZmqMessage();

  /// Takes the next message off a socket, whole; false: there is none now. Of one with more frames
  /// than a batch can have, those beyond are dropped.
  bool receive(void* socket);
  /// Valid until the message is cleared or another one received. Throws DataError where frames were
  /// dropped.
  MessageFrames frames() const;
  /// The same without those that were dropped.
  MessageFrames kept_frames() const noexcept;
  /// Of all its frames, those that were dropped too.
  std::int64_t bytes() const noexcept { return bytes_; }
  MessageSender sender() const;
  /// The descriptor of the connection that it came by; -1: none.
  int connection() const;
  /// Each has what the other had; what was seen of their frames stays where it lies in memory.
  void swap(ZmqMessage& other) noexcept;
  /// Gives libzmq its memory back.
  void clear();

  // By whoever receives it:
  std::int64_t number = 0;   ///< among all messages, from 1
  std::size_t endpoint = 0;  ///< which of several it came by

 private:
  struct Frames;
  std::unique_ptr<Frames> frames_;
  std::array<std::span<const std::byte>, kMaxMessageFrames> views_;  // of frames_
  std::size_t count_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace penstock
