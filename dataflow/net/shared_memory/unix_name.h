// SPDX-License-Identifier: Apache-2.0
// Names of abstract Unix sockets. They are written "@NAME" and leave no file behind.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

namespace penstock::net {

struct UnixAddress {
  sockaddr_un address{};
  socklen_t bytes = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
};

/// Empty unless the name is '@' and 1 to 107 characters of printable ASCII.
inline std::optional<UnixAddress> abstract_address(std::string_view name) noexcept {
  UnixAddress result;
  if (name.size() < 2 || name.size() > sizeof result.address.sun_path || name.front() != '@' ||
      !std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; })) {
    return std::nullopt;
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data() + 1, name.size() - 1);
  result.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return result;
}

/// The process at the other end of a Unix socket; empty if the system does not tell.
inline std::optional<ucred> credentials_of(int connection) noexcept {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return std::nullopt;
  return peer;
}

}  // namespace penstock::net
