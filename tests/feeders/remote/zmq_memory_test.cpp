// SPDX-License-Identifier: Apache-2.0
// The kernel's buffers of connections, and memory pages of messages.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "dataflow/machine/file_descriptor.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

int send_buffer_of(int connection) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  getsockopt(connection, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
  return bytes / 2;  // the kernel doubles the requested size
}

/// The buffer size that the kernel grants for a request of `bytes`.
int granted(int bytes) {
  int most = 0;
  std::ifstream("/proc/sys/net/core/wmem_max") >> most;
  return std::min(bytes, most);
}

/// The two ends of a connection.
std::array<FileDescriptor, 2> connected_pair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

TEST(ZmqMemory, BuffersBetweenProcessesGrowAndNeverShrink) {
  const auto pair = connected_pair();
  const int end = pair[0].get(), before = send_buffer_of(end);
  remote::enlarge_send_buffer(end, 1000);
  EXPECT_EQ(send_buffer_of(end), before);
  remote::enlarge_send_buffer(end, remote::kSendBuffer);
  EXPECT_EQ(send_buffer_of(end), std::max(before, granted(remote::kSendBuffer)));
  remote::enlarge_send_buffer(end, INT64_MAX);
  EXPECT_EQ(send_buffer_of(end), std::max(before, granted(INT_MAX)));
}

TEST(ZmqMemory, OtherFileDescriptorsAreNotChanged) {
  const FileDescriptor tcp(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int before = send_buffer_of(tcp.get());
  remote::enlarge_send_buffer(tcp.get(), remote::kSendBuffer);
  EXPECT_EQ(send_buffer_of(tcp.get()), before);
  remote::enlarge_send_buffer(-1, remote::kSendBuffer);
}

TEST(ZmqMemory, ASocketThatSendsHasItsBufferFromItsFirstMessageOn) {
  const int before = send_buffer_of(connected_pair()[0].get()), target = before + before / 2;
  if (granted(target) < target) GTEST_SKIP() << "net.core.wmem_max allows no more than the default";
  const TempFolder folder;
  const net::Endpoint place = net::parse_endpoint("ipc://" + folder.path().string() + "/feed");
  remote::ZmqSocket pull(place, {.role = remote::ZmqSocketOptions::Role::pull});
  remote::ZmqSocket push(
      place, {.role = remote::ZmqSocketOptions::Role::push, .bind = false, .send_buffer = target});
  ASSERT_EQ(push.wait(20s, {}), remote::ZmqSocket::Wake::ready);
  int enlarged = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    enlarged += send_buffer_of(descriptor) >= target ? 1 : 0;
  }
  EXPECT_EQ(enlarged, 1);
}

/// Page faults of a thread that fills and frees messages of `bytes`, after the first few messages.
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
    remote::keep_message_memory(bytes);
    const long pages = static_cast<long>(bytes / 4096) * kMessages;
    EXPECT_LT(faults_of_messages(bytes, kMessages), pages / 20) << bytes;
  }
}

}  // namespace
}  // namespace penstock
