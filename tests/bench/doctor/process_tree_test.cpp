// SPDX-License-Identifier: Apache-2.0
// Reads trees of processes from files in the kernel's format.
#include "bench/doctor/process_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using doctor::Observation;
using doctor::Reading;
using doctor::TreeReader;

constexpr std::int32_t kSelf = 99;

struct FakeThread {
  char state = 'S';
  int processor = 0;
  std::uint64_t cpu_ns = 0, wait_ns = 0, preemptions = 0;
};

class ProcessTree : public testing::Test {
 protected:
  std::filesystem::path proc(std::int32_t pid) const { return root_ / fmt::format("proc/{}", pid); }
  static std::string stat(std::int32_t pid, std::int32_t parent, const FakeThread& thread,
                          const std::string& name, int start = 500) {
    // Fields 5 to 38 have their numbers as values, but for the start of the process.
    std::string text = fmt::format("{} ({}) {} {}", pid, name, thread.state, parent);
    for (int field = 5; field < 39; ++field)
      text += fmt::format(" {}", field == 22 ? start : field);
    return text + fmt::format(" {} 0 0\n", thread.processor);
  }
  void add_thread(std::int32_t pid, std::int32_t id, const FakeThread& thread) const {
    const std::filesystem::path folder = proc(pid) / "task" / std::to_string(id);
    write_text(folder / "stat", stat(id, 1, thread, "thread"));
    write_text(folder / "schedstat", fmt::format("{} {} 5\n", thread.cpu_ns, thread.wait_ns));
    write_text(folder / "status",
               fmt::format("nonvoluntary_ctxt_switches:\t{}\n", thread.preemptions));
  }
  void add(std::int32_t pid, std::int32_t parent, const std::string& name,
           const FakeThread& thread = {}) const {
    write_text(proc(pid) / "stat", stat(pid, parent, thread, name));
    write_text(proc(pid) / "schedstat", "1 2 3\n");
    write_text(proc(pid) / "status",
               "VmRSS:\t  2000 kB\nVmSwap:\t 30 kB\nCpus_allowed_list:\t0-2,5\n");
    write_text(proc(pid) / "io", "rchar: 9\nread_bytes: 4096\n");
    write_text(proc(pid) / "limits",
               "Limit    Soft Limit\nMax open files            64      128\n");
    write_text(proc(pid) / "environ", std::string("A=1\0OMP_NUM_THREADS=8\0B=2\0", 26));
    write_text(proc(pid) / "maps",
               "7f00-7f10 rw-s 00000000 00:17 12 /dev/shm/torch_1 (deleted)\n"
               "8f00-8f10 rw-p 00000000 00:00 0 \nnonsense /dev/shm/x\n");
    for (const int descriptor : {0, 1, 2}) {
      write_text(proc(pid) / fmt::format("fd/{}", descriptor), "");
    }
    std::filesystem::create_directories(proc(pid) / "root/dev/shm");
    add_thread(pid, pid, thread);
  }
  Reading read(std::int32_t pid) {
    reader_.emplace(pid, kSelf, root_.path());
    return reader_->read(Time{});
  }

  TempFolder root_;
  std::optional<TreeReader> reader_;
};

TEST_F(ProcessTree, HasTheRootAndItsDescendantsOnly) {
  add(10, 1, "python3");
  add(11, 10, "worker) (x");
  add(12, 11, "helper");
  add(13, 1, "other");
  add(kSelf, 10, "penstock");
  add(14, 10, "ended", {.state = 'Z'});
  const Reading reading = read(10);
  ASSERT_EQ(reading.processes.size(), 3U);
  EXPECT_EQ(reading.processes.at(11).name, "worker) (x");
  EXPECT_EQ(reading.processes.at(12).parent, 11);
  EXPECT_TRUE(read(14).processes.empty()) << "a zombie has ended";
  EXPECT_TRUE(read(77).processes.empty());
}

TEST_F(ProcessTree, HasCountersOfProcessesAndThreads) {
  add(10, 1, "py\x1b[31m", {.state = 'R', .processor = 3, .cpu_ns = 7, .wait_ns = 8});
  add_thread(10, 21, {.state = 'D', .preemptions = 6});
  const doctor::ProcessReading process = read(10).processes.at(10);
  EXPECT_EQ(process.name, "py [31m") << "it must not control a terminal";
  EXPECT_EQ(process.rss_bytes, 2000U * 1024);
  EXPECT_EQ(process.swap_bytes, 30U * 1024);
  EXPECT_EQ(process.major_faults, 12U);
  EXPECT_EQ(process.start_ticks, 500U);
  EXPECT_EQ(process.read_bytes, 4096U);
  ASSERT_EQ(process.threads.size(), 2U);
  EXPECT_EQ(process.threads.at(10).processor, 3);
  EXPECT_EQ(process.threads.at(10).cpu_ns, 7U);
  EXPECT_EQ(process.threads.at(10).core_wait_ns, 8U);
  EXPECT_EQ(process.threads.at(21).state, 'D');
  EXPECT_EQ(process.threads.at(21).preemptions, 6U);
}

TEST_F(ProcessTree, HasFactsOfEachProcess) {
  add(10, 1, "python3");
  read(10);
  const doctor::ProcessFacts& facts = reader_->facts().at(10);
  EXPECT_EQ(facts.allowed_processors, (std::vector<std::int32_t>{0, 1, 2, 5}));
  EXPECT_EQ(facts.open_files, 3U);
  EXPECT_EQ(facts.open_files_limit, 64U);
  EXPECT_EQ(facts.thread_settings, "OMP_NUM_THREADS=8");
  ASSERT_EQ(facts.shared_files.size(), 1U);
  EXPECT_EQ(facts.shared_files.at("00:17 12"), 16U);
  EXPECT_TRUE(reader_->reasons().empty());
}

TEST_F(ProcessTree, SaysWhyAFigureIsNotKnown) {
  add(10, 1, "python3");
  for (const char* name : {"io", "environ", "maps", "schedstat"}) {
    std::filesystem::remove(proc(10) / name);
  }
  for (const char* name : {"fd", "root"}) std::filesystem::remove_all(proc(10) / name);
  write_text(proc(10) / "status", "Cpus_allowed_list:\t3-1\n");
  const Reading reading = read(10);
  reader_->read_machine();
  EXPECT_FALSE(reading.processes.at(10).read_bytes);
  for (const char* figure : {"read_bytes", "environment", "shared_files", "core_wait", "open_files",
                             "affinity", "shm", "nodes", "rss"}) {
    EXPECT_TRUE(reader_->reasons().contains(figure)) << figure;
  }
  EXPECT_EQ(reader_->reasons().at("read_bytes"), "process 10 (python3): No such file or directory");
}

TEST_F(ProcessTree, AProcessWithoutThreadsMayBelongToAnotherUser) {
  add(10, 1, "python3");
  std::filesystem::remove_all(proc(10) / "task");
  read(10);
  EXPECT_EQ(reader_->reasons().at("threads"),
            "process 10 (python3): Permission denied; run penstock as the same user, or as root");
}

TEST_F(ProcessTree, DamagedFilesAreNoProcess) {
  write_text(proc(10) / "stat", "10 (python3");
  EXPECT_TRUE(read(10).processes.empty());
  write_text(proc(10) / "stat", "10 (python3) R 1 2 3\n");
  EXPECT_TRUE(read(10).processes.empty());
}

TEST_F(ProcessTree, HasMachineAndControlGroups) {
  add(10, 1, "python3");
  write_text(proc(10) / "cgroup", "0::/job\n");
  write_text(root_ / "sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  write_text(root_ / "sys/fs/cgroup/job/cpu.stat", "nr_periods 40\nnr_throttled 4\n");
  write_text(root_ / "sys/fs/cgroup/job/io.pressure", "some avg10=0 total=70\n");
  write_text(root_ / "sys/fs/cgroup/job/memory.max", "2048000\n");
  write_text(root_ / "proc/pressure/cpu", "some avg10=0 total=50\n");
  write_text(root_ / "proc/stat", "cpu 1 2 3 4 5 6 7 8 0 0\n");
  write_text(root_ / "proc/meminfo",
             "MemTotal: 4000 kB\nMemAvailable: 1000 kB\nSwapTotal: 9 kB\nSwapFree: 2 kB\n");
  const doctor::MachineReading machine = read(10).machine;
  EXPECT_EQ(machine.quota_periods, 40U);
  EXPECT_EQ(machine.quota_throttles, 4U);
  EXPECT_EQ(machine.group.io_us, 70U);
  EXPECT_EQ(machine.machine.cpu_us, 50U);
  EXPECT_FALSE(machine.machine.io_us);
  EXPECT_EQ(machine.ticks.steal, 8U);
  EXPECT_EQ(machine.available_bytes, 1000U * 1024);
  EXPECT_EQ(machine.swap_used_bytes, 7U * 1024);

  const std::filesystem::path system = root_ / "sys/devices/system";
  write_text(system / "cpu/online", "0-1\n");
  write_text(system / "node/node1/cpulist", "1\n");
  write_text(system / "cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  write_text(root_ / "sys/bus/pci/drivers/nvidia/0000:3b:00.0/numa_node", "1\n");
  write_text(root_ / "sys/bus/pci/drivers/nvidia/0000:5e:00.0/numa_node", "-1\n");
  const doctor::MachineFacts facts = reader_->read_machine();
  EXPECT_EQ(facts.quota_cores, 1.5);
  EXPECT_EQ(facts.group_memory_bytes, 2048000U);
  EXPECT_EQ(facts.online_processors, 2);
  EXPECT_EQ(facts.nodes.at(1), 1);
  EXPECT_EQ(facts.governors, std::set<std::string>{"powersave"});
  EXPECT_EQ(std::multiset<std::int32_t>(facts.gpu_nodes.begin(), facts.gpu_nodes.end()),
            (std::multiset<std::int32_t>{-1, 1}));
  EXPECT_TRUE(facts.shm_bytes);
}

TEST_F(ProcessTree, IsObservedForTheWindow) {
  add(10, 1, "python3", {.state = 'D', .processor = 1});
  VirtualClock clock;
  const Observation seen = doctor::observe(10, TreeReader(10, kSelf, root_.path()), 5s, clock, {});
  EXPECT_EQ(seen.last.time - seen.first.time, 5s);
  EXPECT_EQ(seen.samples, 11);
  EXPECT_EQ(seen.disk_sleeps.at(10), 11);
  EXPECT_FALSE(seen.ended);
}

TEST_F(ProcessTree, AMissingProcessIsAnErrorOfTheUser) {
  VirtualClock clock;
  const std::string text = thrown_by<ConfigError>(
      [&] { doctor::observe(10, TreeReader(10, kSelf, root_.path()), 5s, clock, {}); });
  EXPECT_TRUE(says(text, "there is no running process 10; expected"));
}

/// A clock that changes the tree when it has slept `sleeps` times.
class ChangingClock final : public Clock {
 public:
  ChangingClock(int sleeps, std::function<void()> change)
      : sleeps_(sleeps), change_(std::move(change)) {}
  Time now() const override { return now_; }
  void sleep_until(Time deadline, std::stop_token) override {
    now_ = deadline;
    if (--sleeps_ == 0) change_();
  }
  void wake(Gate&) override {}

 private:
  bool wait_for_condition(std::unique_lock<std::mutex>&, Gate&, std::stop_token,
                          Condition) override {
    return true;
  }
  Time now_{};
  int sleeps_;
  std::function<void()> change_;
};

TEST_F(ProcessTree, AProcessThatEndsIsObservedUntilThen) {
  add(10, 1, "python3");
  ChangingClock clock(4, [&] { std::filesystem::remove_all(proc(10)); });
  const Observation seen = doctor::observe(10, TreeReader(10, kSelf, root_.path()), 10s, clock, {});
  EXPECT_TRUE(seen.ended);
  EXPECT_EQ(seen.last.time - seen.first.time, 3s);
}

TEST_F(ProcessTree, AnotherProcessOfThatNumberIsNotObserved) {
  add(10, 1, "python3");
  ChangingClock clock(4, [&] { write_text(proc(10) / "stat", stat(10, 1, {}, "sh", 900)); });
  const Observation seen = doctor::observe(10, TreeReader(10, kSelf, root_.path()), 10s, clock, {});
  EXPECT_TRUE(seen.ended);
  EXPECT_EQ(seen.last.processes.at(10).name, "python3");
}

TEST_F(ProcessTree, AProcessThatEndsAtOnceIsAnErrorOfTheUser) {
  add(10, 1, "python3");
  ChangingClock clock(1, [&] { std::filesystem::remove_all(proc(10)); });
  const std::string text = thrown_by<ConfigError>(
      [&] { doctor::observe(10, TreeReader(10, kSelf, root_.path()), 10s, clock, {}); });
  EXPECT_TRUE(says(text, "process 10 ended before anything was measured"));
}

}  // namespace
}  // namespace penstock
