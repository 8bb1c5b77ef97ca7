// SPDX-License-Identifier: Apache-2.0
// The socket files of ipc:// endpoints. libzmq takes them over from a running process silently, and
// leaves them behind. For other endpoints these functions do nothing.
#pragma once

#include <sys/stat.h>

#include <string>

namespace penstock::producer {

/// Whether a process listens on the endpoint.
bool is_listened_to(const std::string& endpoint);

/// The file that a bind created. Removed at the end, unless it belongs to another socket by then.
class SocketFile {
 public:
  explicit SocketFile(const std::string& endpoint);
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile();

 private:
  std::string path_;
  struct stat made_ {};
};

}  // namespace penstock::producer
