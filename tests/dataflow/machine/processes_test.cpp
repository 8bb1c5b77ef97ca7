// SPDX-License-Identifier: Apache-2.0
// Processes and their memory, from files in the kernel's format.
#include "dataflow/machine/processes.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"

namespace penstock {
namespace {

/// Lets a system call fail, as the seccomp profile of a container does. For this process, for ever.
void deny(unsigned number) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(code), code};
  const bool is_set = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  if (!is_set) _exit(77);
}

/// Starts a process and waits for its end by the descriptor. Returns its status.
int status_of_watched() {
  FileDescriptor end;
  const pid_t pid = fork_watched(end);
  if (pid == 0) _exit(7);
  pollfd ended{end.get(), POLLIN, 0};
  int status = 0;
  const bool seen = poll(&ended, 1, 20'000) == 1;
  return seen && waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1;
}

TEST(ForkWatched, KnowsTheEndOfAProcessAlsoIfPidfdOpenIsRefused) {
  EXPECT_EQ(status_of_watched(), 7);
  const pid_t restricted = fork();
  if (restricted == 0) {
    deny(SYS_pidfd_open);
    _exit(syscall(SYS_pidfd_open, getpid(), 0) < 0 ? status_of_watched() : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(restricted, &status, 0), restricted);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

class Processes : public testing::Test {
 protected:
  void add(std::int32_t pid, std::int32_t parent, char state = 'S') const {
    std::string text = std::to_string(pid) + " (a) (b) " + state + " " + std::to_string(parent);
    for (int field = 5; field <= 52; ++field) text += " " + std::to_string(field);
    write_text(file(pid, "stat"), text + "\n");
  }
  std::filesystem::path file(std::int32_t pid, const char* name) const {
    return root_.path() / "proc" / std::to_string(pid) / name;
  }
  const TempFolder root_;
};

TEST_F(Processes, ATreeHasTheRunningDescendantsParentsFirst) {
  add(10, 1);
  add(30, 10);
  add(20, 30);
  add(40, 10, 'Z');
  add(50, 1);
  EXPECT_EQ(process_tree(10, 0, root_.path()), (std::vector<std::int32_t>{10, 30, 20}));
  EXPECT_EQ(process_tree(10, 30, root_.path()), (std::vector<std::int32_t>{10}));
  const ProcessStat stat(root_.path() / "proc/20");
  EXPECT_EQ(stat.name(), "a) (b");
  EXPECT_EQ(stat.number(ProcessStat::kStart), 22U);
}

TEST_F(Processes, MemoryIsProportionalOrElseResidentAndWorkersAreBelowChildren) {
  add(10, 1);
  add(11, 10);
  add(12, 11);
  write_text(file(10, "status"), "VmRSS: 900 kB\n");
  write_text(file(11, "status"), "VmRSS: 500 kB\n");
  write_text(file(12, "status"), "VmRSS: 400 kB\n");
  write_text(file(12, "smaps_rollup"),
             "55-7ff ---p 0 00:00 0 [rollup]\nRss: 400 kB\nPss: 100 kB\n");
  const MemoryOfProcesses memory = memory_of_descendants(10, root_.path());
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory.at(11).bytes, 500U * 1024);
  EXPECT_FALSE(memory.at(11).is_worker);
  EXPECT_EQ(memory.at(12).bytes, 100U * 1024);
  EXPECT_TRUE(memory.at(12).is_worker);
}

TEST_F(Processes, ThisProcessIsAChildOfItsParent) {
  const std::vector<std::int32_t> tree = process_tree(getppid());
  EXPECT_NE(std::ranges::find(tree, getpid()), tree.end());
  EXPECT_TRUE(memory_of_descendants(getpid()).empty());
}

}  // namespace
}  // namespace penstock
