// SPDX-License-Identifier: Apache-2.0
// What libzmq tells of the connections of a socket.
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
  /// Made before the socket binds or connects, and destroyed before it. Throws Failure.
  Connections(void* context, void* watched);
  ~Connections();

  /// To be polled for input.
  void* handle() const noexcept { return socket_.get(); }
  /// Takes in what has happened since the last time.
  void look();

  /// Ends those that are open, and waits until libzmq has taken note of it, a second at most.
  void hang_up() noexcept;

  /// Whether bytes of ours lie in the kernel that their receiver has not read.
  bool have_unread_bytes() const;
  /// How many there were, have ended, and came to nothing, up to the last look: " (no consumer ever
  /// connected)".
  std::string describe() const;

 private:
  struct Close {
    void operator()(void* socket) const noexcept;
  };

  void* const watched_;
  std::unique_ptr<void, Close> socket_;
  std::map<int, ino_t> open_;  // descriptors: libzmq's, and another's once it has closed them
  std::int64_t joined_ = 0, left_ = 0, refused_ = 0;
  bool handshake_failed_ = false;  // of the connection that ends next
  std::string why_;                // the last one did
};

}  // namespace penstock::producer
