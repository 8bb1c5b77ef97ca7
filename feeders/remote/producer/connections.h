// SPDX-License-Identifier: Apache-2.0
// Tracks the connections of a socket through libzmq's events.
//
// Thread-safety: one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace penstock::producer {

class Connections {
 public:
  /// Construct before the socket binds or connects, and destroy before the socket. Throws Failure.
  Connections(void* context, void* watched);
  ~Connections();

  /// Poll it for input.
  void* handle() const noexcept { return socket_.get(); }
  /// Handles all events since the last call.
  void look();

  /// Closes open connections, and waits until libzmq has noticed, a second at most.
  void hang_up() noexcept;

  /// Whether the kernel holds bytes of ours that the receiver has not read.
  bool have_unread_bytes() const;
  /// Describes how many connections there were, have ended, or failed, as of the last look(), such
  /// as " (no consumer ever connected)".
  std::string describe() const;

 private:
  struct Close {
    void operator()(void* socket) const noexcept;
  };

  void* const watched_;
  std::unique_ptr<void, Close> socket_;
  std::map<int, ino_t> open_;  // file descriptors; may be reused once libzmq has closed them
  std::int64_t joined_ = 0, left_ = 0, refused_ = 0;
  bool handshake_failed_ = false;  // of the next connection to end
  std::string why_;                // reason of the last failure
};

}  // namespace penstock::producer
