// SPDX-License-Identifier: Apache-2.0
// Owners of file descriptors: of any one, and of an eventfd, which wakes threads that wait for
// descriptors.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "dataflow/error.h"

namespace penstock {

/// Closes a file descriptor with its owner. Move-only; one thread at a time.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) noexcept : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~FileDescriptor() { reset(); }

  explicit operator bool() const noexcept { return fd_ >= 0; }
  int get() const noexcept { return fd_; }
  /// The caller must close the result.
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

/// Wakes threads that wait for file descriptors. Thread-safety: any thread.
class EventFd {
 public:
  /// Throws ConfigError if the process has no free file descriptor.
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_) throw ConfigError(std::string("cannot open an eventfd: ") + std::strerror(errno));
  }
  /// Readable from signal() until drain(); without drain(), it wakes every later wait.
  int get() const noexcept { return fd_.get(); }
  void signal() const noexcept { eventfd_write(fd_.get(), 1); }
  void drain() const noexcept {
    eventfd_t count = 0;
    eventfd_read(fd_.get(), &count);
  }

 private:
  const FileDescriptor fd_;
};

}  // namespace penstock
