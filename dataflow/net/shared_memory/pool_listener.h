// SPDX-License-Identifier: Apache-2.0
// Hands a pool's descriptor to processes of this user. It listens on an abstract Unix socket
// (SOCK_SEQPACKET) with a random name. Each process that connects gets one byte with the
// descriptor, and then the connection ends.
//
// Thread-safety: it has its own thread; any thread may call its members.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace penstock::net {

class PoolListener {
 public:
  /// `fd` must stay open as long as the listener exists. Only processes of user `uid` get it.
  /// Throws ConfigError if no such socket can be made.
  PoolListener(int fd, uid_t uid);
  ~PoolListener();

  /// "@penstock-...".
  const std::string& name() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::net
