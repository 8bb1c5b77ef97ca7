// SPDX-License-Identifier: Apache-2.0
// The files of ipc:// endpoints, which libzmq takes from a live process without a word, and leaves
// behind. Endpoints of other kinds have none, and nothing is done.
#pragma once

#include <sys/stat.h>

#include <string>

namespace penstock::producer {

/// Whether a process listens there.
bool is_listened_to(const std::string& endpoint);

/// The file that a bind made, removed at the end unless it is another's by then.
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
