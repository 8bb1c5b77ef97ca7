// SPDX-License-Identifier: Apache-2.0
#include "bench/doctor/findings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <tuple>

#include "dataflow/machine/memory_limit.h"

namespace penstock::doctor {
namespace {

// From these values on a finding is worth a look, or a problem. They are rules of thumb: below the
// first value the effect on a training is a few per cent at most.
struct Limits {
  double look, problem;
};
constexpr Limits kCoreWaitPercent{10, 25};  // of the time in which threads were runnable
constexpr Limits kThrottledPercent{1, 10};  // of the quota's periods
constexpr Limits kThreadsPerCore{1, 2};     // more busy threads than this for each usable core
constexpr Limits kRoomPercent{10, 5};       // of the memory; less than this
constexpr Limits kSecondsToFull{kSecondsToFillSoon, 600};  // less than this
constexpr Limits kMajorFaultsPerSecond{10, 200};
constexpr Limits kShmFreePercent{20, 5};      // less than this
constexpr Limits kDiskSleepPercent{20, 50};   // of the samples
constexpr Limits kIoPressurePercent{10, 40};  // of the window
constexpr Limits kCpuPressurePercent{40, 80};
constexpr Limits kMemoryPressurePercent{1, 10};
constexpr Limits kStealPercent{1, 5};  // of the processor time
constexpr Limits kOthersPercent{10, 50};
constexpr Limits kOpenFilesPercent{80, 95};  // of the limit
/// Docker's default size of /dev/shm.
constexpr double kSmallShm = 64 * 1048576.0;
/// A thread is busy if it was runnable for this share of the window.
constexpr double kBusyShare = 0.1;
/// Below these values, counters of an idle process jitter.
constexpr double kIdleCores = 0.05;

/// What a check found.
struct Result {
  Severity severity = Severity::ok;
  std::string found;
  std::vector<std::pair<std::string_view, double>> figures{};
  std::optional<double> lost{};  ///< Finding::lost
};

Severity above(double value, Limits limits) {
  return value >= limits.problem ? Severity::problem
         : value >= limits.look  ? Severity::look
                                 : Severity::ok;
}
Severity below(double value, Limits limits) {
  return value < limits.problem ? Severity::problem
         : value < limits.look  ? Severity::look
                                : Severity::ok;
}

/// Unknown yields to anything that is known to be wrong.
Severity worse(Severity a, Severity b) {
  constexpr std::array kOrder{Severity::ok, Severity::unknown, Severity::look, Severity::problem};
  const auto place = [&](Severity each) { return std::ranges::find(kOrder, each); };
  return place(a) < place(b) ? b : a;
}

std::string size_text(double bytes) {
  return bytes < 1e9 ? fmt::format("{:.0f} MB", bytes / 1e6)
                     : fmt::format("{:.1f} GB", bytes / 1e9);
}

std::string who(const ProcessUse& use) { return fmt::format("process {} ({})", use.pid, use.name); }

std::string plural(double count, std::string_view noun) {
  return fmt::format("{:.0f} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string reason_of(const Observation& seen, const std::string& figure) {
  const auto reason = seen.reasons.find(figure);
  return reason == seen.reasons.end() ? "the kernel does not show it" : reason->second;
}

template <typename Value>
double growth(const std::optional<Value>& before, const std::optional<Value>& after) {
  return before && after && *after > *before ? static_cast<double>(*after - *before) : 0;
}

double percent_of(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

template <typename Value>
double total(const std::vector<ProcessUse>& uses, Value ProcessUse::*member) {
  return std::accumulate(uses.begin(), uses.end(), 0.0, [&](double sum, const ProcessUse& use) {
    return sum + static_cast<double>(use.*member);
  });
}

template <typename Value>
const ProcessUse& most(const std::vector<ProcessUse>& uses, Value ProcessUse::*member) {
  return *std::ranges::max_element(uses, {}, member);
}

Result check_cores(const Observation& seen, const std::vector<ProcessUse>& uses) {
  const double cpu = total(uses, &ProcessUse::cpu_cores);
  const double wait = total(uses, &ProcessUse::wait_cores), cores = usable_cores(seen);
  if (cores == 0) return {Severity::unknown, reason_of(seen, "affinity")};
  if (seen.reasons.contains("core_wait")) return {Severity::unknown, reason_of(seen, "core_wait")};
  if (seen.reasons.contains("threads")) return {Severity::unknown, reason_of(seen, "threads")};
  const double percent = percent_of(wait, cpu + wait);
  const ProcessUse& worst = most(uses, &ProcessUse::wait_cores);
  Result result{
      cpu + wait < kIdleCores ? Severity::ok : above(percent, kCoreWaitPercent),
      fmt::format("{:.1f} threads were runnable on average, {:.1f} usable cores ran {:.1f} of "
                  "them. Runnable threads waited for a core in {:.0f} % of their time, and lost it "
                  "{:.0f} times a second",
                  cpu + wait, cores, cpu, percent, total(uses, &ProcessUse::preemptions_per_s)),
      {{"usable_cores", cores},
       {"cpu_cores", cpu},
       {"core_wait_percent", percent},
       {"preemptions_per_s", total(uses, &ProcessUse::preemptions_per_s)}},
      wait};
  if (result.severity != Severity::ok) {
    result.found +=
        fmt::format("; {} waited most: {:.1f} threads on average", who(worst), worst.wait_cores);
  }
  if (cores < seen.machine.online_processors) {
    result.found +=
        fmt::format(". The machine has {} processors; affinity or a quota allows {:.1f}",
                    seen.machine.online_processors, cores);
  }
  return result;
}

Result check_quota(const Observation& seen, const std::vector<ProcessUse>&) {
  const auto &first = seen.first.machine, &last = seen.last.machine;
  if (!seen.machine.quota_cores) return {Severity::ok, "no CPU quota is visible"};
  const std::string quota = fmt::format("the quota is {:.1f} cores", *seen.machine.quota_cores);
  if (!last.quota_throttles || !first.quota_throttles) {
    return {Severity::unknown, quota + "; the control group has no cpu.stat"};
  }
  const double throttled = growth(first.quota_throttles, last.quota_throttles);
  const double periods = growth(first.quota_periods, last.quota_periods);
  const double percent = percent_of(throttled, std::max(periods, throttled));
  return {above(percent, kThrottledPercent),
          fmt::format("{}, and stopped the processes in {:.0f} of {}", quota, throttled,
                      plural(std::max(periods, throttled), "period")),
          {{"quota_cores", *seen.machine.quota_cores}, {"throttled_percent", percent}},
          percent / 100};
}

Result check_threads(const Observation& seen, const std::vector<ProcessUse>& uses) {
  const double cores = usable_cores(seen), busy = total(uses, &ProcessUse::busy_threads);
  if (cores == 0) return {Severity::unknown, reason_of(seen, "affinity")};
  if (seen.reasons.contains("threads")) return {Severity::unknown, reason_of(seen, "threads")};
  const ProcessUse& largest = most(uses, &ProcessUse::busy_threads);
  // As many busy threads as cores is the best case, so only more than that counts.
  const double per_core = busy > cores && largest.busy_threads > 1 ? busy / cores : 0;
  Result result{
      per_core > kThreadsPerCore.look ? above(per_core, kThreadsPerCore) : Severity::ok,
      fmt::format("{} in {} used {:.1f} cores", plural(busy, "busy thread"),
                  uses.size() == 1 ? "1 process" : fmt::format("{} processes", uses.size()),
                  total(uses, &ProcessUse::cpu_cores)),
      {{"busy_threads", busy},
       {"threads", total(uses, &ProcessUse::threads)},
       {"processes", static_cast<double>(uses.size())},
       {"most_busy_threads", static_cast<double>(largest.busy_threads)}}};
  if (result.severity == Severity::ok) return result;
  const auto facts = seen.facts.find(largest.pid);
  const bool set = facts != seen.facts.end() && !facts->second.thread_settings.empty();
  result.found += fmt::format("; {} has the most: {} busy of {}. Its environment {}", who(largest),
                              largest.busy_threads, largest.threads,
                              set ? "has " + facts->second.thread_settings
                              : seen.reasons.contains("environment")
                                  ? "is not known: " + reason_of(seen, "environment")
                                  : "sets no OMP_NUM_THREADS");
  return result;
}

Result check_memory(const Observation& seen, const std::vector<ProcessUse>& uses) {
  const MachineReading& machine = seen.last.machine;
  if (!machine.memory_bytes || !machine.available_bytes) {
    return {Severity::unknown, "/proc/meminfo has no MemTotal or no MemAvailable"};
  }
  if (seen.reasons.contains("rss")) return {Severity::unknown, reason_of(seen, "rss")};
  const auto limit = static_cast<double>(
      std::min(*machine.memory_bytes, seen.machine.group_memory_bytes.value_or(UINT64_MAX)));
  const double rss = total(uses, &ProcessUse::rss_bytes);
  const double growing = total(uses, &ProcessUse::growth_bytes_per_s);
  const auto room = static_cast<double>(seen.machine.room_bytes);
  Result result{
      below(percent_of(room, limit), kRoomPercent),
      fmt::format(
          "the processes hold {}, pages that they share counted in each, and {} of {} {} free",
          size_text(rss), size_text(room), size_text(limit),
          seen.machine.group_memory_bytes ? "(limit of the control group) are" : "are"),
      {{"rss_bytes", rss}, {"room_bytes", room}, {"limit_bytes", limit}}};
  const double window = window_s(seen);
  if (!tells_growth(seen)) {
    result.found += fmt::format("; watched {:.0f} s; growth needs a minute", window);
    return result;
  }
  result.figures.emplace_back("growth_bytes_per_s", growing);
  if (const auto left = seconds_to_fill(growing * window, window, room)) {
    const ProcessUse& fastest = most(uses, &ProcessUse::growth_bytes_per_s);
    result.severity = worse(result.severity, below(*left, kSecondsToFull));
    result.found += fmt::format(
        "; they grow by {} a minute, which fills the rest in {:.0f} min; {} grows fastest",
        size_text(60 * growing), *left / 60, who(fastest));
  }
  return result;
}

Result check_paging(const Observation& seen, const std::vector<ProcessUse>& uses) {
  double swapped = 0;
  for (const auto& [pid, process] : seen.last.processes) {
    swapped += static_cast<double>(process.swap_bytes);
  }
  const double faults = total(uses, &ProcessUse::major_faults_per_s);
  const auto& machine = seen.last.machine.swap_used_bytes;
  return {worse(above(faults, kMajorFaultsPerSecond), swapped > 0 ? Severity::look : Severity::ok),
          fmt::format("{} of the processes are swapped out ({} on the whole machine); {:.0f} pages "
                      "a second were read from storage on access",
                      size_text(swapped),
                      machine ? size_text(static_cast<double>(*machine)) : "not known", faults),
          {{"swapped_bytes", swapped}, {"major_faults_per_s", faults}}};
}

Result check_shared_memory(const Observation& seen, const std::vector<ProcessUse>& uses) {
  if (!seen.machine.shm_bytes) return {Severity::unknown, reason_of(seen, "shm")};
  std::map<std::string, std::uint64_t> files;  // a file counts once
  for (const auto& [pid, facts] : seen.facts) {
    for (const auto& [inode, bytes] : facts.shared_files) {
      files[inode] = std::max(files[inode], bytes);
    }
  }
  double mapped = 0;
  for (const auto& [inode, bytes] : files) mapped += static_cast<double>(bytes);
  const auto size = static_cast<double>(seen.machine.shm_bytes->first);
  const auto free = static_cast<double>(seen.machine.shm_bytes->second);
  const bool small = size <= kSmallShm && uses.size() > 1;
  const bool known = !seen.reasons.contains("shared_files");
  Result result{
      worse(below(percent_of(free, size), kShmFreePercent), small    ? Severity::look
                                                            : !known ? Severity::unknown
                                                                     : Severity::ok),
      fmt::format("/dev/shm has {}, {} of it free; what the processes map there: {}",
                  size_text(size), size_text(free),
                  known ? size_text(mapped) : "not known, " + reason_of(seen, "shared_files")),
      {{"shm_bytes", size}, {"shm_free_bytes", free}}};
  if (known) result.figures.emplace_back("shm_mapped_bytes", mapped);
  return result;
}

/// The share of the window in which tasks of the machine, or of the group if it is larger, waited.
std::optional<double> pressure(const Observation& seen,
                               std::optional<std::uint64_t> Pressure::*member) {
  std::optional<double> percent;
  for (const auto scope : {&MachineReading::machine, &MachineReading::group}) {
    const auto before = seen.first.machine.*scope.*member, after = seen.last.machine.*scope.*member;
    if (!before || !after) continue;
    const double share = percent_of(1e-6 * growth(before, after), window_s(seen));
    percent = std::clamp(share, percent.value_or(0), 100.0);
  }
  return percent;
}

std::string pressure_text(std::optional<double> percent) {
  return percent ? fmt::format("{:.0f} %", *percent) : "not known (no pressure file)";
}

Result check_storage(const Observation& seen, const std::vector<ProcessUse>& uses) {
  const auto worst =
      std::ranges::max_element(seen.disk_sleeps, {}, [](const auto& pair) { return pair.second; });
  const double sleeps =
      worst == seen.disk_sleeps.end() ? 0 : percent_of(worst->second, seen.samples);
  const std::optional<double> waits = pressure(seen, &Pressure::io_us);
  const bool known = !seen.reasons.contains("read_bytes");
  const double bytes = total(uses, &ProcessUse::read_bytes_per_s);
  Result result{
      worse(worse(above(sleeps, kDiskSleepPercent), above(waits.value_or(0), kIoPressurePercent)),
            known ? Severity::ok : Severity::unknown),
      fmt::format("read from storage: {}. In {:.0f} % of {} samples a thread was in disk sleep{}. "
                  "Tasks waited for storage in {} of the window",
                  known ? fmt::format("{:.1f} MB/s", bytes / 1e6)
                        : "not known, " + reason_of(seen, "read_bytes"),
                  sleeps, seen.samples,
                  sleeps > 0 ? fmt::format(" (process {})", worst->first) : "",
                  pressure_text(waits)),
      {{"disk_sleep_percent", sleeps}},
      std::max(sleeps, waits.value_or(0)) / 100};
  if (known) result.figures.emplace_back("read_bytes_per_s", bytes);
  if (waits) result.figures.emplace_back("io_pressure_percent", *waits);
  return result;
}

Result check_pressure(const Observation& seen, const std::vector<ProcessUse>&) {
  const auto cpu = pressure(seen, &Pressure::cpu_us), memory = pressure(seen, &Pressure::memory_us);
  if (!cpu || !memory) {
    return {Severity::unknown, "the kernel shows no /proc/pressure/cpu or /proc/pressure/memory"};
  }
  return {worse(above(*cpu, kCpuPressurePercent), above(*memory, kMemoryPressurePercent)),
          fmt::format("tasks of the machine or the control group waited for a core in {:.0f} % of "
                      "the window, and for memory in {:.0f} %",
                      *cpu, *memory),
          {{"cpu_pressure_percent", *cpu}, {"memory_pressure_percent", *memory}},
          std::max(*cpu, *memory) / 100};
}

Result check_frequency(const Observation& seen, const std::vector<ProcessUse>&) {
  const auto &before = seen.first.machine.heat_throttles, &after = seen.last.machine.heat_throttles;
  const double heat = growth(before, after);
  if (heat > 0) {
    return {Severity::problem,
            fmt::format("heat made cores slower {:.0f} times in the window", heat),
            {{"heat_throttles", heat}}};
  }
  const auto& governors = seen.machine.governors;
  if (governors.empty()) {
    return {Severity::unknown,
            "the system shows no frequency governor, as in most virtual machines"};
  }
  const bool fast = governors == std::set<std::string>{"performance"};
  return {fast ? (after ? Severity::ok : Severity::unknown) : Severity::look,
          fmt::format("the frequency governor is {}; {}", fmt::join(governors, ", "),
                      after ? "heat made no core slower in the window"
                            : "slower cores through heat: not known, no counters are visible")};
}

Result check_others(const Observation& seen, const std::vector<ProcessUse>& uses) {
  const CpuTicks &before = seen.first.machine.ticks, &after = seen.last.machine.ticks;
  if (after.total <= before.total || seen.machine.online_processors == 0) {
    return {Severity::unknown, "/proc/stat or the list of processors is not readable"};
  }
  const double steal = steal_percent(before, after);
  const double own =
      percent_of(total(uses, &ProcessUse::cpu_cores), seen.machine.online_processors);
  const double others = std::max(0.0, busy_percent(before, after) - own);
  return {worse(above(steal, kStealPercent), above(others, kOthersPercent)),
          fmt::format(
              "other programs used {:.0f} % of all processor time, the hypervisor took {:.1f} %",
              others, steal),
          {{"other_programs_percent", others}, {"steal_percent", steal}},
          (others + steal) / 100 * seen.machine.online_processors};
}

Result check_nodes(const Observation& seen, const std::vector<ProcessUse>&) {
  std::set<std::int32_t> nodes;
  for (const auto& [processor, node] : seen.machine.nodes) nodes.insert(node);
  if (nodes.empty()) return {Severity::unknown, reason_of(seen, "nodes")};
  if (nodes.size() == 1) return {Severity::ok, "skipped: the machine has one NUMA node"};
  const std::set<std::int32_t> gpus(seen.machine.gpu_nodes.begin(), seen.machine.gpu_nodes.end());
  if (gpus.empty()) return {Severity::unknown, "skipped: no NVIDIA GPU is visible below /sys"};
  if (gpus.contains(-1)) return {Severity::unknown, "the system does not know the GPU's NUMA node"};
  double all = 0, far = 0;
  for (const auto& [processor, count] : seen.runs_on) {
    const auto node = seen.machine.nodes.find(processor);
    all += count;
    if (node != seen.machine.nodes.end() && !gpus.contains(node->second)) far += count;
  }
  if (all == 0) return {Severity::unknown, "no thread was runnable in any sample"};
  const double percent = percent_of(far, all);
  constexpr double kMostFar = 25;
  return {percent >= kMostFar ? Severity::look : Severity::ok,
          fmt::format("{:.0f} % of the samples of runnable threads were on a NUMA node without a "
                      "GPU; GPUs are on {} of {} nodes",
                      percent, gpus.size(), nodes.size()),
          {{"far_from_gpu_percent", percent}}};
}

Result check_files(const Observation& seen, const std::vector<ProcessUse>&) {
  const ProcessFacts* worst = nullptr;
  double percent = -1;
  std::int32_t owner = 0;
  for (const auto& [pid, facts] : seen.facts) {
    if (!facts.open_files || !facts.open_files_limit) continue;
    const double share = percent_of(static_cast<double>(*facts.open_files),
                                    static_cast<double>(*facts.open_files_limit));
    if (share <= percent) continue;
    percent = share, worst = &facts, owner = pid;
  }
  if (worst == nullptr) return {Severity::unknown, reason_of(seen, "open_files")};
  const bool all = !seen.reasons.contains("open_files");
  return {worse(above(percent, kOpenFilesPercent), all ? Severity::ok : Severity::unknown),
          fmt::format(
              "process {} has {} of at most {} files open, the highest share of the processes{}",
              owner, *worst->open_files, *worst->open_files_limit,
              all ? "" : "; some are not known: " + reason_of(seen, "open_files")),
          {{"open_files_percent", percent}}};
}

struct Check {
  std::string_view name, cost, find_out, remedy;
  Result (*find)(const Observation&, const std::vector<ProcessUse>&);
  std::string_view lost_unit = "s of waiting in each second";
};

constexpr std::array kChecks{
    Check{"cores", "Workers and the training loop wait for a core instead of working.",
          "Compare the speed of the training with half the workers, and without other programs.",
          "Use fewer workers or threads, stop other programs, or allow more cores.", check_cores},
    Check{"quota", "All threads stand still until the quota's next period begins, often 100 ms.",
          "Watch nr_throttled in cpu.stat of the control group.",
          "Raise the quota (docker --cpus, Kubernetes limits.cpu), or use fewer threads.",
          check_quota},
    Check{"threads", "Threads that share a core interrupt each other and empty its caches.",
          "Start the training with OMP_NUM_THREADS=1 and compare its speed.",
          "Set OMP_NUM_THREADS=1, and call cv2.setNumThreads(0) and torch.set_num_threads(1) in "
          "each worker.",
          check_threads},
    Check{"memory", "The kernel ends a process when memory is used up, often a worker.",
          "Repeat with --seconds 60s: a first epoch fills caches, a leak grows on.",
          "Lower num_workers or prefetch_factor; keep data in arrays rather than Python lists, "
          "which each worker copies when it touches them.",
          check_memory},
    Check{
        "paging", "A thread that touches such a page waits for storage.",
        "Repeat after some minutes: reading memory-mapped data for the first time looks the same.",
        "Free memory, or turn swap off; preload memory-mapped data.", check_paging},
    Check{"shared memory", "Workers end with a bus error when /dev/shm is full.",
          "Watch `df /dev/shm` during an epoch.",
          "Enlarge it (docker --shm-size, an emptyDir of medium Memory), or lower num_workers or "
          "prefetch_factor.",
          check_shared_memory},
    Check{"storage", "Workers wait for storage instead of decoding.",
          "Compare a first epoch with a second one, which the page cache may serve.",
          "Pack small files into shards, copy the data to a local disk, or use more workers.",
          check_storage},
    Check{"pressure", "Some task stood still for that long.",
          "Read avg10 in /proc/pressure, and find the other programs with top.",
          "Stop other programs, or lower the number of workers.", check_pressure},
    Check{"frequency", "Cores run slower than they could, and rates differ from run to run.",
          "Compare its speed after `cpupower frequency-set -g performance`.",
          "Set the governor to performance; check cooling if heat is the cause.", check_frequency},
    Check{"other programs", "They take cores, caches and memory bandwidth from the training.",
          "Find them with top; ask the provider of the virtual machine about steal.",
          "Stop or move them; choose a machine with dedicated cores.", check_others, "cores"},
    Check{"NUMA", "Batches cross the link between processors on their way to the GPU.",
          "Start the training with numactl --cpunodebind and --membind on the GPU's node.",
          "Bind each training process to the node of its GPU, as `nvidia-smi topo -m` shows it.",
          check_nodes},
    Check{"files", "Opening a file or a socket fails when the limit is reached.",
          "Count the entries of /proc/PID/fd over time.",
          "Raise the limit (ulimit -n), or call "
          "torch.multiprocessing.set_sharing_strategy('file_system').",
          check_files},
};

ProcessUse use_of(std::int32_t pid, const ProcessReading* before, const ProcessReading& after,
                  double seconds) {
  static const ProcessReading kNew;  // it began in the window
  const ProcessReading& from = before != nullptr ? *before : kNew;
  const auto rate = [&](std::uint64_t first, std::uint64_t last) {
    return last > first ? static_cast<double>(last - first) / seconds : 0;
  };
  ProcessUse use{.pid = pid,
                 .name = after.name,
                 .threads = static_cast<std::int32_t>(after.threads.size()),
                 .rss_bytes = static_cast<double>(after.rss_bytes),
                 .major_faults_per_s = rate(from.major_faults, after.major_faults)};
  if (before != nullptr) {  // a new process is not a leak
    use.growth_bytes_per_s =
        (static_cast<double>(after.rss_bytes) - static_cast<double>(from.rss_bytes)) / seconds;
  }
  if (after.read_bytes) {
    use.read_bytes_per_s = rate(from.read_bytes.value_or(0), *after.read_bytes);
  }
  for (const auto& [id, thread] : after.threads) {
    const auto old = from.threads.find(id);
    const ThreadReading then = old == from.threads.end() ? ThreadReading{} : old->second;
    const double cpu = 1e-9 * rate(then.cpu_ns, thread.cpu_ns);
    const double wait = 1e-9 * rate(then.core_wait_ns, thread.core_wait_ns);
    use.cpu_cores += cpu;
    use.wait_cores += wait;
    use.preemptions_per_s += rate(then.preemptions, thread.preemptions);
    if (cpu + wait >= kBusyShare) ++use.busy_threads;
  }
  return use;
}

}  // namespace

bool is_bad(Severity severity) {
  return severity == Severity::problem || severity == Severity::look;
}

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::ok:
      return "ok";
    case Severity::look:
      return "worth a look";
    case Severity::problem:
      return "problem";
    case Severity::unknown:
      break;
  }
  return "not known";
}

double window_s(const Observation& seen) {
  return std::max(1e-3, to_seconds(seen.last.time - seen.first.time));
}

std::vector<ProcessUse> uses_of(const Observation& seen) {
  std::vector<ProcessUse> uses;
  for (const auto& [pid, process] : seen.last.processes) {
    const auto old = seen.first.processes.find(pid);
    const bool same =
        old != seen.first.processes.end() && old->second.start_ticks == process.start_ticks;
    uses.push_back(use_of(pid, same ? &old->second : nullptr, process, window_s(seen)));
  }
  std::ranges::stable_sort(uses, std::greater(), &ProcessUse::cpu_cores);
  return uses;
}

double usable_cores(const Observation& seen) {
  std::set<std::int32_t> processors;
  for (const auto& [pid, facts] : seen.facts) {
    processors.insert(facts.allowed_processors.begin(), facts.allowed_processors.end());
  }
  const auto cores = static_cast<double>(processors.size());
  return std::min(cores, seen.machine.quota_cores.value_or(cores));
}

std::string not_begun(const Observation& seen) {
  constexpr double kYoungS = 30;
  const std::vector<ProcessUse> uses = uses_of(seen);
  const double used = total(uses, &ProcessUse::cpu_cores) + total(uses, &ProcessUse::wait_cores);
  if (used < kIdleCores && !seen.reasons.contains("threads") && seen.disk_sleeps.empty() &&
      total(uses, &ProcessUse::read_bytes_per_s) == 0) {
    return fmt::format("it does nothing: {:.2f} cores were used. Check it again when it trains",
                       used);
  }
  if (seen.first.processes.size() == 1 && uses.size() > 1) {
    return "it started its workers only now. Check it again when it trains";
  }
  const auto uptime_s = seen.last.machine.uptime_s;
  const double age_s = static_cast<double>(uptime_s.value_or(0)) -
                       static_cast<double>(seen.last.processes.at(seen.root_pid).start_ticks) /
                           static_cast<double>(sysconf(_SC_CLK_TCK));
  if (uses.size() == 1 && uses.front().busy_threads <= 1 && uptime_s && age_s < kYoungS) {
    return fmt::format(
        "it began {:.0f} s ago and has no worker processes. Check it again when they run, or, if "
        "it loads without any, {:.0f} s after its start",
        age_s, kYoungS);
  }
  return {};
}

std::vector<Finding> findings_of(const Observation& seen) {
  if (!not_begun(seen).empty()) return {};
  const std::vector<ProcessUse> uses = uses_of(seen);
  std::vector<Finding> findings;
  for (const Check& check : kChecks) {
    Result result = check.find(seen, uses);
    findings.push_back({.check = check.name,
                        .severity = result.severity,
                        .found = std::move(result.found),
                        .figures = std::move(result.figures),
                        .lost = is_bad(result.severity) ? result.lost : std::nullopt,
                        .lost_unit = check.lost_unit,
                        .cost = check.cost,
                        .find_out = check.find_out,
                        .remedy = check.remedy});
  }
  constexpr std::array kOrder{Severity::problem, Severity::look, Severity::unknown, Severity::ok};
  std::ranges::stable_sort(findings, {}, [&](const Finding& finding) {
    return std::tuple(!is_bad(finding.severity), -finding.lost.value_or(0),
                      std::ranges::find(kOrder, finding.severity));
  });
  return findings;
}

}  // namespace penstock::doctor
