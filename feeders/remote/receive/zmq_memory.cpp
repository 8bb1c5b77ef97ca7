// SPDX-License-Identifier: Apache-2.0
#include "feeders/zmq_memory.h"

#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>

namespace penstock {
namespace {

#ifdef __GLIBC__
/// glibc takes no larger M_MMAP_THRESHOLD on 64-bit machines.
constexpr std::size_t kMostThreshold = std::size_t{32} << 20;

/// The size of a thread's heaps: one with less room than M_TOP_PAD before it is not given back.
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
  // The kernel doubles what it is asked for, and says so.
  const int wanted = static_cast<int>(std::min<std::int64_t>(bytes, INT_MAX / 2));
  if (found / 2 >= wanted) return;
  static_cast<void>(setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted));
}

void keep_message_memory(std::size_t bytes) noexcept {
#ifdef __GLIBC__
  // Room for libzmq's own part of the message.
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

}  // namespace penstock
