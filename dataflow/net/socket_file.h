// SPDX-License-Identifier: Apache-2.0
// The socket files of ipc:// endpoints. libzmq takes them over from a running process silently, and
// leaves them behind. It depends on no other part of Penstock, because the library for producers
// uses it too.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace penstock::net {

/// The path of an endpoint's socket file; empty: it has none.
std::string socket_path(const std::string& endpoint);

enum class Listener : std::uint8_t {
  none,  ///< there is no file
  dead,  ///< left by a process that has ended
  live,  ///< a process listens
  other  ///< the file is no socket
};
/// Who listens at a socket file.
Listener find_listener(const std::string& path);

/// The file that a bind to `address` created, if any. Removed at the end, unless it belongs to
/// another socket by then.
class SocketFile {
 public:
  explicit SocketFile(const std::string& address);
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile();

 private:
  std::string path_;
  struct stat made_ {};
};

}  // namespace penstock::net
