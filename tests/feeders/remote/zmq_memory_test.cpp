// SPDX-License-Identifier: Apache-2.0
// The kernel's buffers of connections, and the pages of messages.
#include "feeders/zmq_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "feeders/zmq_socket.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

int send_buffer_of(int connection) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  getsockopt(connection, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
  return bytes / 2;  // the kernel doubles what it was asked for
}

/// What the kernel gives to whoever asks for `bytes`.
int granted(int bytes) {
  int most = 0;
  std::ifstream("/proc/sys/net/core/wmem_max") >> most;
  return std::min(bytes, most);
}

class Pair {
 public:
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int end() const { return ends_[0]; }

 private:
  int ends_[2] = {-1, -1};
};

TEST(ZmqMemory, BuffersBetweenProcessesGrowAndNeverShrink) {
  const Pair pair;
  const int before = send_buffer_of(pair.end());
  enlarge_send_buffer(pair.end(), 1000);
  EXPECT_EQ(send_buffer_of(pair.end()), before);
  enlarge_send_buffer(pair.end(), kSendBuffer);
  EXPECT_EQ(send_buffer_of(pair.end()), std::max(before, granted(kSendBuffer)));
  enlarge_send_buffer(pair.end(), INT64_MAX);
  EXPECT_EQ(send_buffer_of(pair.end()), std::max(before, granted(INT_MAX)));
}

TEST(ZmqMemory, WhatIsNoConnectionBetweenProcessesStaysAsItIs) {
  const int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int before = send_buffer_of(tcp);
  enlarge_send_buffer(tcp, kSendBuffer);
  EXPECT_EQ(send_buffer_of(tcp), before);
  close(tcp);
  enlarge_send_buffer(-1, kSendBuffer);
}

TEST(ZmqMemory, ASocketThatSendsHasItsBufferFromItsFirstMessageOn) {
  const Pair pair;
  const int before = send_buffer_of(pair.end()), wanted = before + before / 2;
  if (granted(wanted) < wanted) GTEST_SKIP() << "net.core.wmem_max allows no more than the default";
  const TempFolder folder;
  const Endpoint place = parse_endpoint("ipc://" + folder.path().string() + "/feed");
  ZmqSocket pull(place, {.role = ZmqSocketOptions::Role::pull});
  ZmqSocket push(place,
                 {.role = ZmqSocketOptions::Role::push, .bind = false, .send_buffer = wanted});
  ASSERT_EQ(push.wait(20s, {}), ZmqSocket::Wake::ready);
  int enlarged = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    enlarged += send_buffer_of(descriptor) >= wanted ? 1 : 0;
  }
  EXPECT_EQ(enlarged, 1);
}

/// Page faults of a thread that fills and frees messages of `bytes`, behind the first few.
long faults_of_messages(std::size_t bytes, int messages) {
  long faults = 0;
  std::thread([&] {
    rusage before{}, after{};
    for (int i = -3; i < messages; ++i) {
      if (i == 0) getrusage(RUSAGE_THREAD, &before);
      auto* const message = static_cast<volatile char*>(std::malloc(bytes));
      for (std::size_t at = 0; at < bytes; at += 4096) message[at] = 1;
      std::free(const_cast<char*>(message));
    }
    getrusage(RUSAGE_THREAD, &after);
    faults = after.ru_minflt - before.ru_minflt;
  }).join();
  return faults;
}

TEST(ZmqMemory, PagesOfFreedMessagesAreUsedAgain) {
#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "malloc is not glibc's";
#endif
  constexpr int kMessages = 8;
  for (const std::size_t bytes : {std::size_t{9634360}, std::size_t{38537216}}) {
    keep_message_memory(bytes);
    const long pages = static_cast<long>(bytes / 4096) * kMessages;
    EXPECT_LT(faults_of_messages(bytes, kMessages), pages / 20) << bytes;
  }
}

}  // namespace
}  // namespace penstock
