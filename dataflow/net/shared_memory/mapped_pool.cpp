// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/shared_memory/mapped_pool.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/net/shared_memory/unix_name.h"

namespace penstock::net {
namespace {

constexpr std::uint64_t kAlignment = 4096;
/// If a message has more descriptors than this, the kernel closes the rest.
constexpr std::size_t kMostDescriptors = 8;
/// Time between two attempts to connect while the producer's queue is full.
constexpr std::chrono::milliseconds kRetry{2};

std::string text_of(int error) { return std::strerror(error); }

/// Waits that share one deadline, or end when a stop is requested.
class Patience {
 public:
  Patience(const std::string& name, Nanoseconds limit, const std::stop_token& stop)
      : name_(name),
        deadline_(std::chrono::steady_clock::now() +
                  std::min<Nanoseconds>(limit, std::chrono::hours(1))),
        wake_(stop, Send{&signal_}) {}

  /// Waits until `fd` (-1: none) is readable or `most` has passed. Throws if no time is left.
  void wait(int fd, std::chrono::milliseconds most = std::chrono::hours(2)) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      throw DataError("pool '{}' did not answer in time; expected its descriptor", name_);
    }
    pollfd items[] = {{signal_.get(), POLLIN, 0}, {fd, POLLIN, 0}};
    poll(items, 2, static_cast<int>(std::min(left, most).count()));
    if (items[0].revents != 0) throw DataError("pool '{}': a stop was requested", name_);
  }

 private:
  struct Send {
    EventFd* signal;
    void operator()() const noexcept { signal->signal(); }
  };
  const std::string& name_;
  const std::chrono::steady_clock::time_point deadline_;
  EventFd signal_;
  std::stop_callback<Send> wake_;
};

FileDescriptor connect_to(const std::string& name, Patience& patience) {
  const std::optional<UnixAddress> address = abstract_address(name);
  if (!address) {
    throw DataError("a producer's pool is no abstract Unix socket; expected '@' and its name");
  }
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw DataError("pool '{}': cannot open a socket: {}", name, text_of(errno));
  while (connect(socket.get(), address->get(), address->bytes) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      throw DataError(
          "pool '{}' cannot be reached: {}; expected a producer that shares its memory, on this "
          "machine",
          name, text_of(errno));
    }
    patience.wait(-1, kRetry);
  }
  const std::optional<ucred> peer = credentials_of(socket.get());
  if (peer && peer->uid == geteuid()) return socket;
  throw DataError("pool '{}' belongs to {}; expected user {}", name,
                  peer ? "user " + std::to_string(peer->uid) : "an unknown user", geteuid());
}

/// Takes ownership of all descriptors in a message, so that unwanted ones are closed too.
std::vector<FileDescriptor> descriptors_of(msghdr& message) {
  std::vector<FileDescriptor> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      found.emplace_back(fd);
    }
  }
  return found;
}

FileDescriptor receive_descriptor(const std::string& name, const FileDescriptor& socket,
                                  Patience& patience) {
  std::array<char, 2> bytes{};
  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  ssize_t count = -1;
  while (true) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    count = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count >= 0) break;
    if (errno != EAGAIN && errno != EINTR) {
      throw DataError("pool '{}' gave no descriptor: {}", name, text_of(errno));
    }
    patience.wait(socket.get());
  }
  std::vector<FileDescriptor> found = descriptors_of(message);
  if (count == 1 && found.size() == 1 && (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0) {
    return std::move(found.front());
  }
  throw DataError("pool '{}' sent {}{} descriptors with {} bytes; expected one with one byte", name,
                  (message.msg_flags & MSG_CTRUNC) != 0 ? "more than " : "", found.size(), count);
}

FileDescriptor fetch(const std::string& name, Nanoseconds limit, const std::stop_token& stop) {
  Patience patience(name, limit, stop);
  const FileDescriptor socket = connect_to(name, patience);
  return receive_descriptor(name, socket, patience);
}

}  // namespace

MappedPool::MappedPool(const std::string& name, std::uint64_t max_bytes, Nanoseconds limit,
                       const std::stop_token& stop)
    : MappedPool(fetch(name, limit, stop), max_bytes) {}

MappedPool::MappedPool(const FileDescriptor& fd, std::uint64_t max_bytes) {
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) {
    throw DataError("a producer's pool is no memfd ({}); expected a sealed one", text_of(errno));
  }
  if ((seals & kNeeded) != kNeeded) {
    throw DataError("a producer's pool has the seals {}; expected F_SEAL_SHRINK and F_SEAL_GROW",
                    seals);
  }
  // Reserved huge pages can be taken away again; reading them would then raise a signal.
  struct statfs system {};
  if (fstatfs(fd.get(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
    throw DataError("a producer's pool is of huge pages; expected a memfd of small ones");
  }
  struct stat file {};
  if (fstat(fd.get(), &file) != 0 || file.st_size <= 0) {
    throw DataError("a producer's pool is empty; expected room for batches");
  }
  const auto size = static_cast<std::uint64_t>(file.st_size);
  if (size > std::min<std::uint64_t>(max_bytes, std::numeric_limits<std::size_t>::max())) {
    throw DataError("a producer's pool has {} bytes; expected at most {}", size, max_bytes);
  }
  void* const memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    throw DataError("a producer's pool cannot be mapped for reading: " + text_of(errno));
  }
  memory_ = {static_cast<const std::byte*>(memory), size};
}

MappedPool::~MappedPool() { munmap(const_cast<std::byte*>(memory_.data()), memory_.size()); }

std::span<const std::byte> MappedPool::view(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset % kAlignment != 0) {
    throw DataError("a lease begins at byte {} of its pool; expected a multiple of {}", offset,
                    kAlignment);
  }
  if (offset > memory_.size() || bytes > memory_.size() - offset) {
    throw DataError("a lease of {} bytes at byte {} ends beyond its pool, which has {}", bytes,
                    offset, memory_.size());
  }
  return memory_.subspan(offset, bytes);
}

}  // namespace penstock::net
