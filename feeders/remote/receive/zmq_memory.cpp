// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/zmq_memory.h"

#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>

namespace penstock::remote {
namespace {

#ifdef __GLIBC__
/// Largest M_MMAP_THRESHOLD that glibc accepts on 64-bit machines.
constexpr std::size_t kMostThreshold = std::size_t{32} << 20;

/// Size of a thread's heap. glibc keeps a heap if the one before it has less room than M_TOP_PAD.
constexpr int kHeap = 64 << 20;
#endif

}  // namespace

void enlarge_send_buffer(int connection, std::int64_t bytes) noexcept {
  int domain = 0, found = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(connection, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX)
    return;
  size = sizeof found;
  if (getsockopt(connection, SOL_SOCKET, SO_SNDBUF, &found, &size) != 0) return;
  // The kernel doubles the requested size, and reports the doubled one.
  const int wanted = static_cast<int>(std::min<std::int64_t>(bytes, INT_MAX / 2));
  if (found / 2 >= wanted) return;
  static_cast<void>(setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted));
}

void keep_message_memory(std::size_t bytes) noexcept {
#ifdef __GLIBC__
  // 4096: room for libzmq's own part of the message.
  if (bytes + 4096 < kMostThreshold) {
    mallopt(M_MMAP_THRESHOLD, kMostThreshold);
  } else {
    mallopt(M_MMAP_MAX, 0);
  }
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, kHeap);
#else
  static_cast<void>(bytes);
#endif
}

}  // namespace penstock::remote
