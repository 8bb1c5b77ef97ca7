// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/socket_file.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace penstock::net {

std::string socket_path(const std::string& endpoint) {
  constexpr std::string_view kScheme = "ipc://";
  if (!endpoint.starts_with(kScheme) || endpoint.starts_with("ipc://@")) return "";
  return endpoint.substr(kScheme.size());
}

Listener find_listener(const std::string& path) {
  sockaddr_un address{};
  struct stat status {};
  if (path.empty() || path.size() >= sizeof address.sun_path || lstat(path.c_str(), &status) != 0) {
    return Listener::none;
  }
  if (!S_ISSOCK(status.st_mode)) return Listener::other;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return Listener::live;  // it may be
  const int result =
      connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address);  // NOLINT
  const int error = result == 0 ? 0 : errno;
  close(probe);
  return error == ECONNREFUSED || error == ENOENT ? Listener::dead : Listener::live;
}

SocketFile::SocketFile(const std::string& address) : path_(socket_path(address)) {
  if (!path_.empty() && lstat(path_.c_str(), &made_) != 0) path_.clear();
}

SocketFile::~SocketFile() {
  struct stat found {};
  if (path_.empty() || lstat(path_.c_str(), &found) != 0) return;
  if (found.st_dev == made_.st_dev && found.st_ino == made_.st_ino) unlink(path_.c_str());
}

}  // namespace penstock::net
