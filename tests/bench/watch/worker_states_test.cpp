// SPDX-License-Identifier: Apache-2.0
// What a child process does, seen from outside while it does it.
#include "bench/watch/worker_states.h"

#include <gtest/gtest.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "tests/support/patience.h"

namespace penstock::watch {
namespace {

/// Is a child that runs `work` seen in this state in the end?
bool is_seen(std::string_view state, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  const bool seen = await([&] { return state_of_worker(child, getpid()) == state; });
  EXPECT_EQ(state_of_worker(child, getpid() + 1), "") << "another process's child";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(state_of_worker(child, getpid()), "") << "it has ended";
  return seen;
}

TEST(WorkerStates, ALockThatProcessesShareDiffersFromOneInsideAProcessAndFromASleep) {
  void* const memory =
      mmap(nullptr, 2 * sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const locks = static_cast<sem_t*>(memory);
  ASSERT_EQ(sem_init(&locks[0], 1, 0), 0);
  ASSERT_EQ(sem_init(&locks[1], 0, 0), 0);
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  const std::vector<std::pair<std::string_view, std::function<void()>>> works{
      {kWaitsForLock, [&] { sem_wait(&locks[0]); }},
      {kWaitsForThreads, [&] { sem_wait(&locks[1]); }},
      {kSleeps, [] { sleep(1000); }},
      {kReadsFiles, [&] { static_cast<void>(!read(ends[0], ends, 1)); }},
      {kComputes, [] {
         std::atomic<int> turns = 0;
         while (true) ++turns;
       }}};
  if (!is_seen(kSleeps, works[2].second)) {
    GTEST_SKIP() << "this kernel does not show in which system call a process is";
  }
  for (const auto& [state, work] : works) {
    EXPECT_TRUE(is_seen(state, work)) << state;
  }
  close(ends[0]);
  close(ends[1]);
  munmap(memory, 2 * sizeof(sem_t));
}

}  // namespace
}  // namespace penstock::watch
