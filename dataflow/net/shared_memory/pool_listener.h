// SPDX-License-Identifier: Apache-2.0
// Hands a pool's descriptor to the processes of this user that ask for it: each that connects to an
// abstract Unix socket (SOCK_SEQPACKET), whose name nobody guesses, gets one byte with the
// descriptor beside it, and the connection ends.
//
// Thread-safety: it has a thread of its own; its members may be called from any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace penstock {

class PoolListener {
 public:
  /// `fd` stays open as long as the listener. Only processes of user `uid` get it. Throws
  /// ConfigError where there is no such socket to be had.
  PoolListener(int fd, uid_t uid);
  ~PoolListener();

  /// "@penstock-...".
  const std::string& name() const noexcept;
  /// Connections that were given the descriptor, and those of other users, who were not.
  std::int64_t served() const noexcept;
  std::int64_t refused() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
