// SPDX-License-Identifier: Apache-2.0
// Shared pools, from the producer's memory through the socket to the consumer's mapping, and
// everything that a peer may send in place of a pool.
#include "dataflow/net/shared_memory/shared_pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/net/shared_memory/mapped_pool.h"
#include "dataflow/net/shared_memory/pool_listener.h"
#include "dataflow/net/shared_memory/unix_name.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kAny = std::uint64_t{1} << 40;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

FileDescriptor make_memfd(off_t size, int seals) {
  FileDescriptor fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), size), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

std::string refusal_of(const FileDescriptor& fd, std::uint64_t max_bytes = kAny) {
  return thrown_by<DataError>([&] { net::MappedPool(fd, max_bytes); });
}

std::string refusal_of(const std::string& name, Nanoseconds limit = 10s) {
  return thrown_by<DataError>([&] { net::MappedPool(name, kAny, limit, {}); });
}

/// Serves one connection with anything that a test wants.
class OtherListener {
 public:
  OtherListener(std::vector<int> fds, std::size_t bytes, bool answers = true)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const std::optional<net::UnixAddress> address = net::abstract_address(name());
    EXPECT_EQ(bind(socket_.get(), address->get(), address->bytes), 0);
    EXPECT_EQ(listen(socket_.get(), 1), 0);
    if (answers) {
      thread_ = std::jthread([this, fds = std::move(fds), bytes] { serve(fds, bytes); });
    }
  }
  ~OtherListener() { shutdown(socket_.get(), SHUT_RDWR); }
  std::string name() const { return name_; }

 private:
  void serve(const std::vector<int>& fds, std::size_t bytes) const {
    const FileDescriptor connection(accept(socket_.get(), nullptr, nullptr));
    if (!connection) return;
    std::array<char, 8> data{};
    iovec vector{data.data(), bytes};
    std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    sendmsg(connection.get(), &message, MSG_NOSIGNAL);
  }

  const std::string name_ = "@penstock-test-" + std::to_string(getpid()) + "-" +
                            std::to_string(reinterpret_cast<std::uintptr_t>(this));
  FileDescriptor socket_;
  std::jthread thread_;
};

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST(SharedPool, SlotsAreAlignedDisjointZeroAndHoldWhatWasAskedFor) {
  const net::SharedPool pool(5000, 3);
  ASSERT_EQ(pool.slots(), 3U);
  EXPECT_EQ(pool.bytes(), 3U * 8192);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::span<std::byte> slot = pool.slot(i);
    EXPECT_GE(slot.size(), 5000U);
    EXPECT_EQ(pool.offset_of(slot.data()), i * 8192);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slot.data()) % 4096, 0U);
    for (const std::byte byte : slot) ASSERT_EQ(byte, std::byte{0});
    std::memset(slot.data(), static_cast<int>(i + 1), slot.size());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pool.slot(i).front(), static_cast<std::byte>(i + 1));
    EXPECT_EQ(pool.slot(i).back(), static_cast<std::byte>(i + 1));
  }
}

TEST(SharedPool, NeverChangesItsSize) {
  const net::SharedPool pool(4096, 2);
  EXPECT_NE(ftruncate(pool.fd(), 0), 0);
  EXPECT_NE(ftruncate(pool.fd(), 1 << 20), 0);
  EXPECT_EQ(fcntl(pool.fd(), F_GET_SEALS) & (kSizeSeals | F_SEAL_SEAL), kSizeSeals | F_SEAL_SEAL);
}

TEST(SharedPool, MoreThanAnyMachineHasIsAnError) {
  const std::size_t half = std::numeric_limits<std::size_t>::max() / 2;
  EXPECT_THROW(net::SharedPool(half, 2), DeviceError);
  // Refused before memory is requested, because the kernel would kill processes for lack of it.
  EXPECT_THROW(net::SharedPool(std::size_t{1} << 60, 1), ConfigError);
}

TEST(PoolListener, EachThatAsksMapsTheSameBytesAndKeepsThem) {
  auto pool = std::make_unique<net::SharedPool>(4096, 2);
  auto listener = std::make_unique<net::PoolListener>(pool->fd(), geteuid());
  const net::PoolListener other(pool->fd(), geteuid());
  EXPECT_NE(listener->name(), other.name());
  std::memset(pool->slot(1).data(), 7, 4096);
  const net::MappedPool first(listener->name(), kAny, 10s, {});
  const net::MappedPool second(listener->name(), kAny, 10s, {});
  EXPECT_EQ(first.bytes(), 8192U);
  EXPECT_EQ(first.view(4096, 4096).back(), std::byte{7});
  pool->slot(1)[9] = std::byte{8};
  EXPECT_EQ(second.view(4096, 4096)[9], std::byte{8});
  const std::string name = listener->name();
  listener.reset();
  pool.reset();
  EXPECT_EQ(first.view(4096, 4096)[9], std::byte{8});  // remains after the producer is gone
  EXPECT_TRUE(says(refusal_of(name), "cannot be reached"));
}

TEST(PoolListener, ItsClientsCannotWrite) {
  const net::SharedPool pool(4096, 1);
  if ((fcntl(pool.fd(), F_GET_SEALS) & 0x10) == 0) GTEST_SKIP() << "Linux before 5.1";
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pool.fd(), 0), MAP_FAILED);
}

TEST(PoolListener, OtherUsersGetNothing) {
  const net::SharedPool pool(4096, 1);
  const net::PoolListener listener(pool.fd(),
                                   geteuid() + 1);  // this process looks like another user
  const std::string text = refusal_of(listener.name());
  EXPECT_TRUE(says(text, "gave no descriptor") || says(text, "0 descriptors")) << text;
}

TEST(PoolListener, SilentConnectionsDelayNoOther) {
  const net::SharedPool pool(4096, 1);
  const net::PoolListener listener(pool.fd(), geteuid());
  const std::optional<net::UnixAddress> address = net::abstract_address(listener.name());
  std::vector<FileDescriptor> idle;
  for (int i = 0; i < 20; ++i) {
    idle.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(idle.back().get(), address->get(), address->bytes), 0);
  }
  EXPECT_EQ(net::MappedPool(listener.name(), kAny, 10s, {}).bytes(), 4096U);
}

TEST(MappedPool, PoolsOfOtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const net::SharedPool pool(4096, 1);
  std::array<int, 2> ready{}, done{};
  ASSERT_EQ(pipe(ready.data()) | pipe(done.data()), 0);
  std::array<char, 64> name{};
  const pid_t child = fork();
  if (child == 0) {
    // A bare listener: the other side sees the credentials of the process that listens.
    if (setuid(65534) != 0) _exit(1);
    const FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    const std::string own = "@penstock-test-nobody-" + std::to_string(getpid());
    const std::optional<net::UnixAddress> address = net::abstract_address(own);
    if (bind(socket.get(), address->get(), address->bytes) != 0) _exit(2);
    if (listen(socket.get(), 1) != 0) _exit(3);
    if (write(ready[1], own.data(), own.size()) < 0) _exit(4);
    char byte = 0;
    _exit(read(done[0], &byte, 1) == 1 ? 0 : 5);
  }
  ASSERT_GT(read(ready[0], name.data(), name.size() - 1), 0);
  EXPECT_TRUE(says(refusal_of(std::string(name.data())), "belongs to user 65534"));
  EXPECT_EQ(write(done[1], "x", 1), 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

TEST(MappedPool, AnUnsealedFileIsRefused) {
  EXPECT_TRUE(says(refusal_of(make_memfd(4096, 0)), "seals 0"));
  EXPECT_TRUE(says(refusal_of(make_memfd(4096, F_SEAL_SHRINK)), "F_SEAL_GROW"));
  EXPECT_TRUE(says(refusal_of(make_memfd(4096, F_SEAL_GROW)), "F_SEAL_SHRINK"));
  EXPECT_TRUE(says(refusal_of(make_memfd(0, kSizeSeals)), "is empty"));
  EXPECT_TRUE(says(refusal_of(make_memfd(8192, kSizeSeals), 8191), "at most 8191"));
  EXPECT_EQ(net::MappedPool(make_memfd(8192, kSizeSeals), 8192).bytes(), 8192U);

  const TempFolder folder;
  folder.write("file", std::vector<std::byte>(4096));
  EXPECT_TRUE(says(refusal_of(FileDescriptor(open((folder / "file").c_str(), O_RDWR | O_CLOEXEC))),
                   "expected"));
  const FileDescriptor unsealable(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (unsealable) {
    EXPECT_TRUE(says(refusal_of(unsealable), "expected"));
  }
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const FileDescriptor reading(ends[0]), writing(ends[1]);
  EXPECT_TRUE(says(refusal_of(reading), "no memfd"));
  EXPECT_TRUE(says(refusal_of(FileDescriptor()), "no memfd"));
}

TEST(MappedPool, HugePagesThatCanBeTakenAwayAreRefused) {
  const FileDescriptor fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd) GTEST_SKIP() << "no huge pages in this kernel";
  ASSERT_EQ(ftruncate(fd.get(), 2 << 20), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kSizeSeals), 0);
  EXPECT_TRUE(says(refusal_of(fd), "huge pages"));
}

TEST(MappedPool, OneDescriptorWithOneByteIsTaken) {
  const FileDescriptor fd = make_memfd(4096, kSizeSeals);
  const std::size_t before = open_descriptors();
  EXPECT_TRUE(says(refusal_of(OtherListener({}, 1).name()), "0 descriptors"));
  EXPECT_TRUE(says(refusal_of(OtherListener({fd.get(), fd.get()}, 1).name()), "2 descriptors"));
  EXPECT_TRUE(says(refusal_of(OtherListener({fd.get()}, 2).name()), "with 2 bytes"));
  const std::vector<int> many(20, fd.get());
  EXPECT_TRUE(says(refusal_of(OtherListener(many, 1).name()), "more than 8"));
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(net::MappedPool(OtherListener({fd.get()}, 1).name(), kAny, 10s, {}).bytes(), 4096U);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(MappedPool, NamesThatLeadNowhereAreRefused) {
  EXPECT_TRUE(says(refusal_of("@penstock-test-nobody-listens"), "cannot be reached"));
  for (const std::string& name :
       {std::string(), std::string("@"), std::string("/tmp/socket"), std::string("@a\0b", 4),
        std::string("@a\n"), "@" + std::string(108, 'x')}) {
    EXPECT_TRUE(says(refusal_of(name), "no abstract Unix socket")) << name;
  }
}

TEST(MappedPool, AListenerThatNeverAnswersIsGivenUp) {
  const OtherListener silent({}, 0, false);
  EXPECT_TRUE(says(refusal_of(silent.name(), 50ms), "did not answer in time"));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(says(
      thrown_by<DataError>([&] { net::MappedPool(silent.name(), kAny, 1h, stop.get_token()); }),
      "a stop was requested"));
}

TEST(MappedPool, AListenerWithAFullQueueIsGivenUp) {
  const OtherListener silent({}, 0, false);
  const std::optional<net::UnixAddress> address = net::abstract_address(silent.name());
  std::vector<FileDescriptor> waiting;
  while (true) {
    waiting.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (connect(waiting.back().get(), address->get(), address->bytes) != 0) break;
    ASSERT_LT(waiting.size(), 100U);
  }
  EXPECT_TRUE(says(refusal_of(silent.name(), 50ms), "did not answer in time"));
}

TEST(MappedPool, LeasesLieInIt) {
  const net::MappedPool pool(make_memfd(3 * 4096 + 100, kSizeSeals), kAny);
  EXPECT_EQ(pool.view(0, pool.bytes()).size(), pool.bytes());
  EXPECT_EQ(pool.view(3 * 4096, 100).size(), 100U);
  EXPECT_EQ(pool.view(4096, 0).size(), 0U);
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THROW(pool.view(0, pool.bytes() + 1), DataError);
  EXPECT_THROW(pool.view(3 * 4096, 101), DataError);
  EXPECT_THROW(pool.view(4 * 4096, 0), DataError);
  EXPECT_THROW(pool.view(4096, kMost), DataError);
  EXPECT_THROW(pool.view(kMost - 4095, 4096), DataError);
  EXPECT_THROW(pool.view(1, 1), DataError);
  EXPECT_THROW(pool.view(64, 1), DataError);
}

TEST(MappedPool, MemoryThatTheProducerRemovesReadsAsZeros) {
  const FileDescriptor fd = make_memfd(4096, kSizeSeals);
  const char byte = 5;
  ASSERT_EQ(pwrite(fd.get(), &byte, 1, 0), 1);
  const net::MappedPool pool(fd, kAny);
  EXPECT_EQ(pool.view(0, 1)[0], std::byte{5});
  ASSERT_EQ(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_EQ(pool.view(0, 1)[0], std::byte{0});
}

}  // namespace
}  // namespace penstock
