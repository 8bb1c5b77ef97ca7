// SPDX-License-Identifier: Apache-2.0
// Judges observations that tests make up: both sides of each limit.
#include "bench/doctor/findings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/doctor/doctor_report.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using doctor::Finding;
using doctor::Observation;
using doctor::Severity;

constexpr std::uint64_t kMB = 1'000'000, kSecondNs = 1'000'000'000;
constexpr std::uint64_t kDockersSharedMemory = 64 << 20;
constexpr std::int32_t kRoot = 10, kWorker = 11;

/// A healthy training in a window of 10 s: two processes with a thread each that uses half a core
/// of four.
Observation healthy() {
  Observation seen;
  seen.root_pid = kRoot;
  seen.samples = 10;
  seen.last.time = seen.first.time + 10s;
  for (const std::int32_t pid : {kRoot, kWorker}) {
    doctor::ProcessReading process{.parent = pid == kRoot ? 1 : kRoot,
                                   .start_ticks = 5,
                                   .name = pid == kRoot ? "python3" : "worker",
                                   .rss_bytes = 100 * kMB};
    process.threads[pid] = {.state = 'S'};
    process.read_bytes = 0;
    seen.first.processes[pid] = process;
    process.threads[pid].cpu_ns = 5 * kSecondNs;
    seen.last.processes[pid] = process;
    seen.facts[pid] = {.allowed_processors = {0, 1, 2, 3},
                       .open_files = 10,
                       .open_files_limit = 1000,
                       .thread_settings = {},
                       .shared_files = {{"00:17 5", 7 * kMB}}};
  }
  for (doctor::Reading* reading : {&seen.first, &seen.last}) {
    doctor::MachineReading& machine = reading->machine;
    machine.machine = {.cpu_us = 0, .io_us = 0, .memory_us = 0};
    machine.heat_throttles = 3;
    machine.memory_bytes = 1000 * kMB;
    machine.available_bytes = 500 * kMB;
    machine.swap_used_bytes = 0;
  }
  seen.last.machine.ticks = {.total = 4000, .steal = 0, .busy = 1000};
  seen.machine = {.online_processors = 4,
                  .quota_cores = {},
                  .group_memory_bytes = {},
                  .room_bytes = 500 * kMB,
                  .shm_bytes = std::pair(1000 * kMB, 900 * kMB),
                  .governors = {"performance"},
                  .nodes = {{0, 0}, {1, 0}, {2, 0}, {3, 0}},
                  .gpu_nodes = {}};
  return seen;
}

Finding finding(const Observation& seen, std::string_view check) {
  const std::vector<Finding> findings = doctor::findings_of(seen);
  const auto found = std::ranges::find(findings, check, &Finding::check);
  EXPECT_NE(found, findings.end()) << check;
  return found == findings.end() ? Finding{} : *found;
}

double figure(const Finding& finding, std::string_view name) {
  for (const auto& [key, value] : finding.figures) {
    if (key == name) return value;
  }
  ADD_FAILURE() << finding.check << " has no " << name;
  return -1;
}

/// Judges the healthy observation after `change`.
template <typename Change>
Severity after(std::string_view check, const Change& change) {
  Observation seen = healthy();
  change(seen);
  return finding(seen, check).severity;
}

TEST(Doctor, FindsAHealthyTrainingInOrder) {
  for (const Finding& finding : doctor::findings_of(healthy())) {
    EXPECT_EQ(finding.severity, Severity::ok) << finding.check << ": " << finding.found;
  }
}

TEST(Doctor, EveryFindingSaysWhatToDo) {
  for (const Finding& finding : doctor::findings_of(healthy())) {
    EXPECT_FALSE(finding.found.empty() || finding.cost.empty() || finding.find_out.empty() ||
                 finding.remedy.empty())
        << finding.check;
  }
}

/// Gives the worker `count` threads that were runnable for `share` of the window.
void give_threads(Observation& seen, int count, double share) {
  auto& threads = seen.last.processes[kWorker].threads;
  for (int i = 0; i < count; ++i) {
    threads[100 + i].core_wait_ns = static_cast<std::uint64_t>(share * 10e9);
  }
}

/// A quantity that a check judges. Values up to the first limit, in the direction of worse, are ok.
struct Limits {
  const char* name;
  const char* check;
  void (*set)(Observation&, double value);
  double ok, look, last_look, problem;  ///< the last value before and the first beyond each limit
};

void grow(Observation& seen, double room_mb) {
  seen.last.time = seen.first.time + 60s;
  seen.last.processes[kWorker].rss_bytes += 120 * kMB;  // 2 MB/s
  seen.machine.room_bytes = static_cast<std::uint64_t>(room_mb) * kMB;
  seen.last.machine.memory_bytes = seen.machine.room_bytes;
}
void throttle(Observation& seen, double periods) {
  seen.machine.quota_cores = 2;
  for (doctor::Reading* reading : {&seen.first, &seen.last}) {
    reading->machine.quota_periods = reading->machine.quota_throttles = 50;
  }
  seen.last.machine.quota_periods = 250;
  seen.last.machine.quota_throttles = 50 + static_cast<std::uint64_t>(periods);
}
template <doctor::Pressure doctor::MachineReading::*Scope, auto Kind>
void press(Observation& seen, double ms) {
  seen.first.machine.*Scope.*Kind = 0;
  seen.last.machine.*Scope.*Kind = static_cast<std::uint64_t>(1000 * ms);
}
template <auto Field>
void count_ticks(Observation& seen, double ticks) {
  seen.last.machine.ticks.*Field += static_cast<std::uint64_t>(ticks);
}

using doctor::MachineReading;
using doctor::Pressure;
constexpr Limits kLimits[] = {
    {"SecondsOfWaitForACore", "cores",
     [](Observation& seen, double seconds) {  // of 10 s and this wait
       seen.last.processes[kWorker].threads[kWorker].core_wait_ns =
           static_cast<std::uint64_t>(seconds * 1e9);
     },
     1.0, 1.2, 3.3, 3.4},
    {"ThrottledPeriodsOf200", "quota", throttle, 1, 2, 19, 20},
    {"BusyThreads", "threads",  // beside two
     [](Observation& seen, double count) { give_threads(seen, static_cast<int>(count), 0.11); }, 2,
     3, 5, 6},
    {"FreeMemory", "memory",
     [](Observation& seen, double megabytes) {
       seen.machine.room_bytes = static_cast<std::uint64_t>(megabytes) * kMB;
     },
     100, 99, 50, 49},
    {"RoomToGrow", "memory", grow, 14'400, 14'399, 1200, 1199},
    {"MajorFaults", "paging",
     [](Observation& seen, double count) {
       seen.last.processes[kRoot].major_faults = static_cast<std::uint64_t>(count);
     },
     99, 100, 1999, 2000},
    {"FreeSharedMemory", "shared memory",
     [](Observation& seen, double megabytes) {
       seen.machine.shm_bytes = std::pair(1000 * kMB, static_cast<std::uint64_t>(megabytes) * kMB);
     },
     200, 199, 50, 49},
    {"SamplesInDiskSleep", "storage",
     [](Observation& seen, double samples) {
       seen.disk_sleeps[kWorker] = static_cast<std::int32_t>(samples);
     },
     1, 2, 4, 5},
    {"StorageOfTheMachine", "storage", press<&MachineReading::machine, &Pressure::io_us>, 999, 1000,
     3999, 4000},
    {"StorageOfTheGroup", "storage", press<&MachineReading::group, &Pressure::io_us>, 999, 1000,
     3999, 4000},
    {"PressureOnCores", "pressure", press<&MachineReading::machine, &Pressure::cpu_us>, 3999, 4000,
     7999, 8000},
    {"PressureOnMemory", "pressure", press<&MachineReading::machine, &Pressure::memory_us>, 99, 100,
     999, 1000},
    {"StolenTicks", "other programs", count_ticks<&CpuTicks::steal>, 39, 40, 199, 200},
    {"TicksOfOtherPrograms", "other programs", count_ticks<&CpuTicks::busy>, 399, 401, 1999, 2001},
    {"OpenFiles", "files",
     [](Observation& seen, double count) {
       seen.facts[kWorker].open_files = static_cast<std::uint64_t>(count);
     },
     799, 800, 949, 950}};

class DoctorLimits : public testing::TestWithParam<Limits> {};
INSTANTIATE_TEST_SUITE_P(All, DoctorLimits, testing::ValuesIn(kLimits),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(DoctorLimits, AreJudgedOnBothSides) {
  const Limits& limits = GetParam();
  const auto judged = [&](double value) {
    return after(limits.check, [&](Observation& seen) { limits.set(seen, value); });
  };
  EXPECT_EQ(judged(limits.ok), Severity::ok);
  EXPECT_EQ(judged(limits.look), Severity::look);
  EXPECT_EQ(judged(limits.last_look), Severity::look);
  EXPECT_EQ(judged(limits.problem), Severity::problem);
}

TEST(Doctor, FactsWithoutALimitAreJudged) {
  const struct {
    const char* check;
    void (*change)(Observation&);
    Severity severity;
  } cases[] = {
      {"quota", [](Observation& seen) { seen.machine.quota_cores = 2; }, Severity::unknown},
      {"threads", [](Observation& seen) { give_threads(seen, 99, 0.09); }, Severity::ok},
      {"memory", [](Observation& seen) { seen.last.machine.available_bytes = {}; },
       Severity::unknown},
      {"memory",  // too little growth to tell from noise
       [](Observation& seen) { seen.last.processes[kWorker].rss_bytes += 16 * kMB; }, Severity::ok},
      {"paging", [](Observation& seen) { seen.last.processes[kRoot].swap_bytes = 1; },
       Severity::look},
      {"shared memory",
       [](Observation& seen) {
         seen.machine.shm_bytes = {kDockersSharedMemory, kDockersSharedMemory};
       },
       Severity::look},
      {"shared memory",
       [](Observation& seen) {
         seen.machine.shm_bytes = {kDockersSharedMemory + 1, kDockersSharedMemory + 1};
       },
       Severity::ok},
      {"storage", [](Observation& seen) { seen.reasons["read_bytes"] = "Permission denied"; },
       Severity::unknown},
      {"pressure", [](Observation& seen) { seen.first.machine.machine.cpu_us = {}; },
       Severity::unknown},
      {"frequency", [](Observation& seen) { seen.machine.governors.insert("schedutil"); },
       Severity::look},
      {"frequency", [](Observation& seen) { seen.machine.governors.clear(); }, Severity::unknown},
      {"frequency", [](Observation& seen) { seen.last.machine.heat_throttles = {}; },
       Severity::unknown},
      {"frequency", [](Observation& seen) { seen.last.machine.heat_throttles = 4; },
       Severity::problem},
      {"other programs", [](Observation& seen) { seen.last.machine.ticks = {}; },
       Severity::unknown},
  };
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(after(cases[i].check, cases[i].change), cases[i].severity)
        << "case " << i << ", " << cases[i].check;
  }
}

std::string text_of(const Observation& seen) {
  std::ostringstream out;
  document::write_text(doctor::document_of(seen, doctor::findings_of(seen)), out);
  return out.str();
}

TEST(Doctor, OfATrainingThatHasNotBegunNothingElseIsSaid) {
  Observation idle = healthy();
  for (auto& [pid, process] : idle.last.processes) {
    process.threads[pid] = {.cpu_ns = 1'000'000, .core_wait_ns = 9'000'000};
  }
  Observation starts = healthy();
  starts.first.processes.erase(kWorker);
  Observation young = healthy();
  for (doctor::Reading* reading : {&young.first, &young.last}) reading->processes.erase(kWorker);
  EXPECT_EQ(doctor::not_begun(young), "") << "its age is not known";
  young.last.machine.uptime_s = 20;
  for (Observation* seen : {&idle, &starts, &young}) {
    seen->facts[kRoot].open_files = 999;
    EXPECT_TRUE(doctor::findings_of(*seen).empty());
    EXPECT_EQ(doctor::to_json(*seen, {}).at("not_begun"), doctor::not_begun(*seen));
  }
  EXPECT_EQ(text_of(idle),
            "Process 10 (python3) and 1 below it, for 10.0 s: it does nothing: 0.00 cores were "
            "used. Check it again when it trains.\n");
  EXPECT_TRUE(says(text_of(starts), "it started its workers only now"));
  EXPECT_TRUE(says(text_of(young), "it began 20 s ago and has no worker processes"));
  young.last.machine.uptime_s = 40;
  EXPECT_EQ(doctor::not_begun(young), "") << "it loads without workers";
  idle.disk_sleeps[kRoot] = 5;
  EXPECT_EQ(doctor::not_begun(idle), "") << "it waits for storage";
  EXPECT_EQ(finding(idle, "cores").severity, Severity::ok);
}

TEST(Doctor, TheFindingThatCostsMostComesFirst) {
  Observation seen = healthy();
  seen.facts[kWorker].open_files = 999;                                        // a problem
  seen.last.processes[kWorker].threads[kWorker].core_wait_ns = 3 * kSecondNs;  // of 10 s
  count_ticks<&CpuTicks::busy>(seen, 500);  // of 4000, on four processors
  std::vector<std::string_view> bad;
  for (const Finding& each : doctor::findings_of(seen)) {
    if (doctor::is_bad(each.severity)) bad.push_back(each.check);
  }
  EXPECT_EQ(bad, (std::vector<std::string_view>{"other programs", "cores", "files"}));
  EXPECT_NEAR(finding(seen, "other programs").lost.value(), 0.5, 1e-9);
  EXPECT_NEAR(finding(seen, "cores").lost.value(), 0.3, 1e-9);
  EXPECT_FALSE(finding(seen, "files").lost);
  EXPECT_FALSE(finding(seen, "storage").lost) << "it is ok";
  const std::string text = text_of(seen);
  EXPECT_TRUE(says(text, " ok. Most is lost to other programs: 0.50 cores."));
  EXPECT_TRUE(says(text, "cores: worth a look, 0.30 s of waiting in each second"));
}

TEST(Doctor, GrowthNeedsAMinute) {
  Observation seen = healthy();
  grow(seen, 1000);
  EXPECT_TRUE(says(finding(seen, "memory").found, "they grow by 120 MB a minute"));
  seen.last.time = seen.first.time + 59s;
  const Finding brief = finding(seen, "memory");
  EXPECT_EQ(brief.severity, Severity::ok);
  EXPECT_TRUE(says(brief.found, "watched 59 s; growth needs a minute"));
  const nlohmann::ordered_json json = doctor::to_json(seen, {});
  EXPECT_TRUE(json.at("processes")[0].at("growth_bytes_per_s").is_null());
}

TEST(Doctor, CoresAreLimitedByAffinityAndQuota) {
  Observation seen = healthy();
  EXPECT_EQ(doctor::usable_cores(seen), 4);
  seen.machine.quota_cores = 1.5;
  EXPECT_EQ(doctor::usable_cores(seen), 1.5);
  for (auto& [pid, facts] : seen.facts) facts.allowed_processors = {2};
  EXPECT_EQ(doctor::usable_cores(seen), 1);
  EXPECT_TRUE(says(finding(seen, "cores").found, "The machine has 4 processors"));
  seen.facts.clear();
  seen.reasons["affinity"] = "not readable";
  EXPECT_EQ(finding(seen, "cores").severity, Severity::unknown);
  EXPECT_EQ(finding(seen, "threads").found, "not readable");
}

TEST(Doctor, TheProcessWithMostThreadsIsNamedWithItsSettings) {
  Observation seen = healthy();
  give_threads(seen, 20, 0.5);
  Finding found = finding(seen, "threads");
  EXPECT_TRUE(says(found.found, "process 11 (worker) has the most: 21 busy of 21"));
  EXPECT_TRUE(says(found.found, "sets no OMP_NUM_THREADS"));
  EXPECT_EQ(figure(found, "busy_threads"), 22);
  seen.facts[kWorker].thread_settings = "OMP_NUM_THREADS=20";
  EXPECT_TRUE(says(finding(seen, "threads").found, "has OMP_NUM_THREADS=20"));
  seen.facts[kWorker].thread_settings = "";
  seen.reasons["environment"] = "Permission denied";
  EXPECT_TRUE(says(finding(seen, "threads").found, "is not known: Permission denied"));
}

TEST(Doctor, TheLimitOfTheControlGroupCounts) {
  Observation seen = healthy();
  seen.machine.group_memory_bytes = 200 * kMB;
  seen.machine.room_bytes = 15 * kMB;
  const Finding found = finding(seen, "memory");
  EXPECT_EQ(found.severity, Severity::look);
  EXPECT_TRUE(says(found.found, "15 MB of 200 MB (limit of the control group)"));
}

TEST(Doctor, ANewWorkerIsNoLeak) {
  Observation seen = healthy();
  seen.last.time = seen.first.time + 60s;
  seen.last.processes[12] = seen.last.processes[kWorker];
  seen.last.processes[12].rss_bytes = 400 * kMB;
  EXPECT_EQ(figure(finding(seen, "memory"), "growth_bytes_per_s"), 0);
  seen.last.processes[kWorker].start_ticks = 6;  // another process of this number
  seen.last.processes[kWorker].rss_bytes = 400 * kMB;
  EXPECT_EQ(figure(finding(seen, "memory"), "growth_bytes_per_s"), 0);
}

TEST(Doctor, SharedFilesCountOnceAndMayBeUnknown) {
  Observation seen = healthy();
  EXPECT_EQ(figure(finding(seen, "shared memory"), "shm_mapped_bytes"), 7e6);
  seen.reasons["shared_files"] = "Permission denied";
  EXPECT_EQ(finding(seen, "shared memory").severity, Severity::unknown);
  seen.machine.shm_bytes = {};
  seen.reasons["shm"] = "no such folder";
  EXPECT_EQ(finding(seen, "shared memory").found, "no such folder");
}

TEST(Doctor, ThreadsFarFromTheGpuAreFound) {
  const auto far = [](std::int32_t samples) {
    return after("NUMA", [&](Observation& seen) {
      seen.machine.nodes = {{0, 0}, {1, 0}, {2, 1}, {3, 1}};
      seen.machine.gpu_nodes = {1};
      seen.runs_on = {{0, samples}, {2, 100 - samples}};
    });
  };
  EXPECT_EQ(far(24), Severity::ok);
  EXPECT_EQ(far(25), Severity::look);
  Observation seen = healthy();
  EXPECT_TRUE(says(finding(seen, "NUMA").found, "skipped: the machine has one NUMA node"));
  seen.machine.nodes[3] = 1;
  EXPECT_EQ(finding(seen, "NUMA").severity, Severity::unknown);
  EXPECT_TRUE(says(finding(seen, "NUMA").found, "no NVIDIA GPU"));
  seen.machine.gpu_nodes = {-1};
  EXPECT_TRUE(says(finding(seen, "NUMA").found, "does not know the GPU's NUMA node"));
  seen.machine.gpu_nodes = {1};
  EXPECT_TRUE(says(finding(seen, "NUMA").found, "no thread was runnable"));
}

TEST(Doctor, UnknownNumbersOfOpenFilesAreNotOk) {
  Observation seen = healthy();
  seen.facts[kWorker].open_files = {};
  seen.reasons["open_files"] = "Permission denied";
  EXPECT_EQ(finding(seen, "files").severity, Severity::unknown);
  seen.facts[kRoot].open_files = {};
  EXPECT_EQ(finding(seen, "files").found, "Permission denied");
}

TEST(Doctor, TheReportHasProblemsFirstAndEverythingElseAfter) {
  Observation seen = healthy();
  seen.ended = true;
  seen.facts[kWorker].open_files = 999;
  seen.machine.governors.clear();
  const std::string text = text_of(seen);
  EXPECT_TRUE(says(text,
                   "Process 10 (python3) and 1 below it, for 10.0 s: 1 problem, 0 worth a "
                   "look, 1 not known, 10 ok."));
  EXPECT_TRUE(says(text, "The process ended in the window."));
  EXPECT_TRUE(says(text, "files: problem"));
  EXPECT_TRUE(says(text, "Do: Raise the limit (ulimit -n)"));
  EXPECT_TRUE(says(text, "- frequency: the system shows no frequency governor"));
  EXPECT_LT(text.find("files: problem"), text.find("Not known:"));
  EXPECT_LT(text.find("Not known:"), text.find("In order:"));
}

TEST(Doctor, TheJsonHasFindingsAndProcesses) {
  const Observation seen = healthy();
  const nlohmann::ordered_json json = doctor::to_json(seen, doctor::findings_of(seen));
  EXPECT_EQ(json.at("schema"), doctor::kSchema);
  EXPECT_EQ(json.at("pid"), kRoot);
  EXPECT_EQ(json.at("window_s"), 10.0);
  EXPECT_EQ(json.at("findings").size(), 12U);
  EXPECT_EQ(json.at("findings")[0].at("severity"), "ok");
  EXPECT_EQ(json.at("processes").size(), 2U);
  EXPECT_EQ(json.at("processes")[1].at("cpu_cores"), 0.5);
  EXPECT_EQ(json.at("processes")[1].at("wait_cores"), 0.0);
}

TEST(Doctor, UnknownFiguresAreNoZeros) {
  Observation seen = healthy();
  for (const char* figure : {"core_wait", "read_bytes", "rss", "shared_files"}) {
    seen.reasons[figure] = "Permission denied";
  }
  const std::vector<Finding> findings = doctor::findings_of(seen);
  const nlohmann::ordered_json json = doctor::to_json(seen, findings);
  for (const char* figure : {"wait_cores", "read_bytes_per_s", "rss_bytes"}) {
    EXPECT_TRUE(json.at("processes")[0].at(figure).is_null()) << figure;
  }
  for (const char* check : {"cores", "memory", "storage", "shared memory"}) {
    EXPECT_EQ(finding(seen, check).severity, Severity::unknown) << check;
  }
  for (const auto& [name, value] : finding(seen, "shared memory").figures) {
    EXPECT_NE(name, "shm_mapped_bytes");
  }
}

}  // namespace
}  // namespace penstock
