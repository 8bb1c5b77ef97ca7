// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/producer/socket_file.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace penstock::producer {
namespace {

constexpr std::string_view kScheme = "ipc://";

/// Empty: the endpoint has no file.
std::string path_of(const std::string& endpoint) {
  if (!endpoint.starts_with(kScheme) || endpoint.starts_with("ipc://@")) return "";
  return endpoint.substr(kScheme.size());
}

}  // namespace

bool is_listened_to(const std::string& endpoint) {
  sockaddr_un address{};
  const std::string path = path_of(endpoint);
  if (path.empty() || path.size() >= sizeof address.sun_path) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return false;
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  // EAGAIN: the listener's queue is full.
  const bool listens = connect(descriptor, generic, sizeof address) == 0 || errno == EAGAIN;
  close(descriptor);
  return listens;
}

SocketFile::SocketFile(const std::string& endpoint) : path_(path_of(endpoint)) {
  if (!path_.empty() && lstat(path_.c_str(), &made_) != 0) path_.clear();
}

SocketFile::~SocketFile() {
  struct stat found {};
  if (path_.empty() || lstat(path_.c_str(), &found) != 0) return;
  if (found.st_dev == made_.st_dev && found.st_ino == made_.st_ino) unlink(path_.c_str());
}

}  // namespace penstock::producer
