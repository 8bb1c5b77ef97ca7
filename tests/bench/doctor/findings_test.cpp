// SPDX-License-Identifier: Apache-2.0
// Judges observations that tests make up: both sides of each limit.
#include "bench/doctor/findings.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Doctor, WaitsForACoreAreASharesOfRunnableTime) {
  const auto wait = [](double seconds) {
    return after("cores", [&](Observation& seen) {
      auto& thread = seen.last.processes[kWorker].threads[kWorker];
      thread.core_wait_ns = static_cast<std::uint64_t>(seconds * 1e9);
    });
  };
  EXPECT_EQ(wait(1.0), Severity::ok);  // of 11 s
  EXPECT_EQ(wait(1.2), Severity::look);
  EXPECT_EQ(wait(3.3), Severity::look);
  EXPECT_EQ(wait(3.4), Severity::problem);
}

TEST(Doctor, AnIdleProcessDoesNotLackCores) {
  EXPECT_EQ(after("cores",
                  [](Observation& seen) {
                    for (auto& [pid, process] : seen.last.processes) {
                      process.threads[pid] = {.cpu_ns = 1'000'000, .core_wait_ns = 9'000'000};
                    }
                  }),
            Severity::ok);
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

TEST(Doctor, AQuotaThatThrottlesIsFound) {
  const auto throttled = [](std::uint64_t periods) {
    return after("quota", [&](Observation& seen) {
      seen.machine.quota_cores = 2;
      for (doctor::Reading* reading : {&seen.first, &seen.last}) {
        reading->machine.quota_periods = reading->machine.quota_throttles = 50;
      }
      seen.last.machine.quota_periods = 250;
      seen.last.machine.quota_throttles = 50 + periods;
    });
  };
  EXPECT_EQ(throttled(1), Severity::ok);
  EXPECT_EQ(throttled(2), Severity::look);
  EXPECT_EQ(throttled(19), Severity::look);
  EXPECT_EQ(throttled(20), Severity::problem);
  EXPECT_EQ(after("quota", [](Observation& seen) { seen.machine.quota_cores = 2; }),
            Severity::unknown);
}

/// Gives the worker `count` threads that were runnable for `share` of the window.
void give_threads(Observation& seen, int count, double share) {
  auto& threads = seen.last.processes[kWorker].threads;
  for (int i = 0; i < count; ++i) {
    threads[100 + i].core_wait_ns = static_cast<std::uint64_t>(share * 10e9);
  }
}

TEST(Doctor, MoreBusyThreadsThanCoresAreFound) {
  const auto threads = [](int count) {
    return after("threads", [&](Observation& seen) { give_threads(seen, count, 0.11); });
  };
  EXPECT_EQ(threads(2), Severity::ok);  // and two that were there
  EXPECT_EQ(threads(3), Severity::look);
  EXPECT_EQ(threads(5), Severity::look);
  EXPECT_EQ(threads(6), Severity::problem);
  EXPECT_EQ(after("threads", [](Observation& seen) { give_threads(seen, 99, 0.09); }), Severity::ok)
      << "idle threads cost nothing";
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

TEST(Doctor, LittleFreeMemoryIsFound) {
  const auto room = [](std::uint64_t bytes) {
    return after("memory", [&](Observation& seen) { seen.machine.room_bytes = bytes; });
  };
  EXPECT_EQ(room(100 * kMB), Severity::ok);
  EXPECT_EQ(room(99 * kMB), Severity::look);
  EXPECT_EQ(room(50 * kMB), Severity::look);
  EXPECT_EQ(room(49 * kMB), Severity::problem);
  EXPECT_EQ(after("memory", [](Observation& seen) { seen.last.machine.available_bytes = {}; }),
            Severity::unknown);
}

TEST(Doctor, TheLimitOfTheControlGroupCounts) {
  Observation seen = healthy();
  seen.machine.group_memory_bytes = 200 * kMB;
  seen.machine.room_bytes = 15 * kMB;
  const Finding found = finding(seen, "memory");
  EXPECT_EQ(found.severity, Severity::look);
  EXPECT_TRUE(says(found.found, "15 MB of 200 MB (limit of the control group)"));
}

TEST(Doctor, GrowthThatFillsTheMemorySoonIsFound) {
  const auto grow = [](std::uint64_t bytes, std::uint64_t room) {
    return after("memory", [&](Observation& seen) {
      seen.last.processes[kWorker].rss_bytes += bytes;
      seen.last.machine.memory_bytes = room;
      seen.machine.room_bytes = room;
    });
  };
  EXPECT_EQ(grow(16 * kMB, 500 * kMB), Severity::ok) << "too little to tell from noise";
  EXPECT_EQ(grow(20 * kMB, 14'400 * kMB), Severity::ok);  // 2 MB/s: 7200 s
  EXPECT_EQ(grow(20 * kMB, 14'399 * kMB), Severity::look);
  EXPECT_EQ(grow(20 * kMB, 1200 * kMB), Severity::look);
  EXPECT_EQ(grow(20 * kMB, 1199 * kMB), Severity::problem);
}

TEST(Doctor, ANewWorkerIsNoLeak) {
  Observation seen = healthy();
  seen.last.processes[12] = seen.last.processes[kWorker];
  seen.last.processes[12].rss_bytes = 400 * kMB;
  EXPECT_EQ(figure(finding(seen, "memory"), "growth_bytes_per_s"), 0);
  seen.last.processes[kWorker].start_ticks = 6;  // another process of this number
  seen.last.processes[kWorker].rss_bytes = 400 * kMB;
  EXPECT_EQ(figure(finding(seen, "memory"), "growth_bytes_per_s"), 0);
}

TEST(Doctor, SwapAndMajorFaultsAreFound) {
  const auto faults = [](std::uint64_t count) {
    return after("paging",
                 [&](Observation& seen) { seen.last.processes[kRoot].major_faults = count; });
  };
  EXPECT_EQ(faults(99), Severity::ok);
  EXPECT_EQ(faults(100), Severity::look);
  EXPECT_EQ(faults(1999), Severity::look);
  EXPECT_EQ(faults(2000), Severity::problem);
  EXPECT_EQ(after("paging", [](Observation& seen) { seen.last.processes[kRoot].swap_bytes = 1; }),
            Severity::look);
}

TEST(Doctor, AFullOrSmallSharedMemoryIsFound) {
  const auto free = [](std::uint64_t megabytes) {
    return after("shared memory", [&](Observation& seen) {
      seen.machine.shm_bytes = std::pair(1000 * kMB, megabytes * kMB);
    });
  };
  EXPECT_EQ(free(200), Severity::ok);
  EXPECT_EQ(free(199), Severity::look);
  EXPECT_EQ(free(50), Severity::look);
  EXPECT_EQ(free(49), Severity::problem);
  constexpr std::uint64_t kDocker = 64 << 20;
  const auto size = [](std::uint64_t bytes) {
    return after("shared memory", [&](Observation& seen) {
      seen.machine.shm_bytes = {bytes, bytes};
    });
  };
  EXPECT_EQ(size(kDocker), Severity::look);
  EXPECT_EQ(size(kDocker + 1), Severity::ok);
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

TEST(Doctor, DiskSleepAndPressureOfStorageAreFound) {
  const auto sleeps = [](std::int32_t samples) {
    return after("storage", [&](Observation& seen) { seen.disk_sleeps[kWorker] = samples; });
  };
  EXPECT_EQ(sleeps(1), Severity::ok);
  EXPECT_EQ(sleeps(2), Severity::look);
  EXPECT_EQ(sleeps(4), Severity::look);
  EXPECT_EQ(sleeps(5), Severity::problem);
  const auto waits = [](std::uint64_t ms, doctor::Pressure doctor::MachineReading::*scope) {
    return after("storage", [&](Observation& seen) {
      (seen.first.machine.*scope).io_us = 0;
      (seen.last.machine.*scope).io_us = 1000 * ms;
    });
  };
  for (const auto scope : {&doctor::MachineReading::machine, &doctor::MachineReading::group}) {
    EXPECT_EQ(waits(999, scope), Severity::ok);
    EXPECT_EQ(waits(1000, scope), Severity::look);
    EXPECT_EQ(waits(4000, scope), Severity::problem);
  }
  EXPECT_EQ(
      after("storage", [](Observation& seen) { seen.reasons["read_bytes"] = "Permission denied"; }),
      Severity::unknown);
}

TEST(Doctor, PressureOnCoresAndMemoryIsFound) {
  const auto waits = [](std::uint64_t cpu_ms, std::uint64_t memory_ms) {
    return after("pressure", [&](Observation& seen) {
      seen.last.machine.machine.cpu_us = 1000 * cpu_ms;
      seen.last.machine.machine.memory_us = 1000 * memory_ms;
    });
  };
  EXPECT_EQ(waits(3999, 99), Severity::ok);
  EXPECT_EQ(waits(4000, 0), Severity::look);
  EXPECT_EQ(waits(8000, 0), Severity::problem);
  EXPECT_EQ(waits(0, 100), Severity::look);
  EXPECT_EQ(waits(0, 1000), Severity::problem);
  EXPECT_EQ(after("pressure", [](Observation& seen) { seen.first.machine.machine.cpu_us = {}; }),
            Severity::unknown);
}

TEST(Doctor, HeatAndGovernorsAreFound) {
  EXPECT_EQ(
      after("frequency", [](Observation& seen) { seen.machine.governors.insert("schedutil"); }),
      Severity::look);
  EXPECT_EQ(after("frequency", [](Observation& seen) { seen.machine.governors.clear(); }),
            Severity::unknown);
  EXPECT_EQ(after("frequency", [](Observation& seen) { seen.last.machine.heat_throttles = {}; }),
            Severity::unknown);
  EXPECT_EQ(after("frequency", [](Observation& seen) { seen.last.machine.heat_throttles = 4; }),
            Severity::problem);
}

TEST(Doctor, StealAndOtherProgramsAreFound) {
  const auto ticks = [](std::uint64_t steal, std::uint64_t others) {
    return after("other programs", [&](Observation& seen) {
      seen.last.machine.ticks = {.total = 4000, .steal = steal, .busy = 1000 + others};
    });
  };
  EXPECT_EQ(ticks(39, 399), Severity::ok);
  EXPECT_EQ(ticks(40, 0), Severity::look);
  EXPECT_EQ(ticks(200, 0), Severity::problem);
  EXPECT_EQ(ticks(0, 401), Severity::look);
  EXPECT_EQ(ticks(0, 2001), Severity::problem);
  EXPECT_EQ(after("other programs", [](Observation& seen) { seen.last.machine.ticks = {}; }),
            Severity::unknown);
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

TEST(Doctor, OpenFilesNearTheLimitAreFound) {
  const auto open = [](std::uint64_t count) {
    return after("files", [&](Observation& seen) { seen.facts[kWorker].open_files = count; });
  };
  EXPECT_EQ(open(799), Severity::ok);
  EXPECT_EQ(open(800), Severity::look);
  EXPECT_EQ(open(949), Severity::look);
  EXPECT_EQ(open(950), Severity::problem);
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
  const std::vector<Finding> findings = doctor::findings_of(seen);
  std::ostringstream out;
  document::write_text(doctor::document_of(seen, findings), out);
  const std::string text = out.str();
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
