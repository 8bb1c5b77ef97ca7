// SPDX-License-Identifier: Apache-2.0
#include "bench/run/memory_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "bench/run/run_parts.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/machine/memory_limit.h"

namespace penstock {
namespace {

constexpr Nanoseconds kPeriod = std::chrono::milliseconds(100);

/// Of the histories, whose sums of level times nanoseconds must fit into 64 bits: terabytes for
/// hours.
constexpr std::size_t kUnit = 16 << 10;

/// A file below /proc that stays open, because sampling must allocate nothing.
class OpenFile {
 public:
  explicit OpenFile(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC)) {}

  /// The number after `key`; none: the file has no such number.
  std::optional<std::size_t> number_after(std::string_view key) const {
    std::array<char, 4096> text;
    const ssize_t size = fd_ ? ::pread(fd_.get(), text.data(), text.size(), 0) : -1;
    if (size <= 0) return std::nullopt;
    const std::string_view all(text.data(), static_cast<std::size_t>(size));
    std::size_t at = all.find(key);
    if (at == std::string_view::npos) return std::nullopt;
    at = all.find_first_not_of(' ', at + key.size());
    std::size_t number = 0;
    if (at == std::string_view::npos ||
        std::from_chars(all.data() + at, all.data() + all.size(), number).ec != std::errc()) {
      return std::nullopt;
    }
    return number;
  }

 private:
  const FileDescriptor fd_;
};

}  // namespace

MemoryWatch::MemoryWatch(std::vector<Level> levels) {
  for (Level& level : levels) watched_.push_back({std::move(level)});
  if (!watched_.empty()) {
    sampler_.emplace(
        [this](Time now) {
          const std::lock_guard lock(mutex_);
          if (watching_) sample(now);
        },
        kPeriod);
  }
}

void MemoryWatch::begin() {
  const std::lock_guard lock(mutex_);
  watching_ = true;
  for (Watched& each : watched_) each.bytes.reset();  // unknown during the pause
  sample(std::chrono::steady_clock::now());
}

void MemoryWatch::end() {
  const std::lock_guard lock(mutex_);
  // A window of simulated time may take no time at all.
  sample(std::max(std::chrono::steady_clock::now(), sampled_ + Nanoseconds(1)));
  watching_ = false;
}

void MemoryWatch::forget() {
  const std::lock_guard lock(mutex_);
  for (Watched& each : watched_) {
    each.history.clear();
    each.peak.reset();
  }
}

/// Between two samples the level is that of the first. Called under the mutex.
void MemoryWatch::sample(Time now) {
  for (Watched& each : watched_) {
    if (each.bytes) {
      each.history.add(static_cast<std::int64_t>(*each.bytes / kUnit), now - sampled_);
    }
    each.bytes = each.level.bytes();
    each.peak = std::max(each.peak, each.bytes);
  }
  sampled_ = now;
}

std::vector<MemoryUse> MemoryWatch::uses(std::size_t parts) const {
  constexpr double kMib = 1 << 20;
  std::vector<MemoryUse> uses;
  const std::lock_guard lock(mutex_);
  for (const Watched& each : watched_) {
    if (!each.peak) continue;
    MemoryUse& use = uses.emplace_back();
    use.name = each.level.name;
    use.peak_mib = static_cast<double>(*each.peak) / kMib;
    for (const double units : each.history.means(parts)) use.mib.push_back(units * kUnit / kMib);
  }
  return uses;
}

namespace {

/// Adds what each GPU used in one part of the window; an interval without a sample repeats the part
/// before it.
void add_part(const std::map<std::string, double>& facts, std::map<int, MemoryUse>& gpus) {
  for (auto& [number, gpu] : gpus) gpu.mib.push_back(gpu.mib.empty() ? 0 : gpu.mib.back());
  for (const auto& [name, mib] : facts) {
    int number = 0;
    if (!name.ends_with("_memory_mib_max") || std::sscanf(name.c_str(), "gpu%d_", &number) != 1) {
      continue;
    }
    MemoryUse& gpu = gpus[number];
    if (gpu.mib.empty()) gpu.mib.push_back(mib);
    gpu.mib.back() = mib;
    gpu.peak_mib = std::max(gpu.peak_mib, mib);
  }
}

/// The ring, weights, gradients and running statistics of a rank, and its share of what the backend
/// says that activations take.
double allocated_mib(const RunParts& run, const RunParts::Rank& rank) {
  const ParameterSet& set = rank.executable->parameters();
  const std::size_t elements = set.weights.count + set.gradients.count + set.running.count;
  const std::size_t bytes =
      rank.ring->slots() * rank.ring->spec().bytes() + elements * sizeof(float);
  const std::map<std::string, double> facts = run.setup.backend->facts();
  const auto activations = facts.find("activation_mib");
  return static_cast<double>(bytes) / (1 << 20) +
         (activations == facts.end() ? 0
                                     : activations->second / static_cast<double>(run.ranks.size()));
}

}  // namespace

std::vector<MemoryUse> device_memory(const RunParts& run, Time from, Time to, std::size_t parts) {
  constexpr Nanoseconds kSampled = std::chrono::seconds(1);  // by the GPUs' backend
  const auto count =
      std::clamp<std::int64_t>((to - from) / kSampled, 1, static_cast<std::int64_t>(parts));
  std::map<int, MemoryUse> gpus;
  for (std::int64_t part = 0; part < count; ++part) {
    const Nanoseconds length = to - from;
    add_part(run.setup.backend
                 ->condition(from + part * length / count, from + (part + 1) * length / count)
                 .facts,
             gpus);
  }
  std::vector<MemoryUse> uses;
  for (auto& [number, gpu] : gpus) {
    gpu.name = fmt::format("device {}", number);
    uses.push_back(std::move(gpu));
  }
  if (!uses.empty()) return uses;
  for (const RunParts::Rank& rank : run.ranks) {
    const double mib = allocated_mib(run, rank);
    uses.push_back({fmt::format("device {}", uses.size()), mib, {mib}});
  }
  return uses;
}

std::vector<MemoryWatch::Level> host_memory_levels() {
  const auto statm = std::make_shared<OpenFile>("/proc/self/statm");
  const auto machine = std::make_shared<OpenFile>("/proc/meminfo");
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  using Bytes = std::optional<std::size_t>;
  return {{"process",
           [statm, page]() -> Bytes {
             const Bytes pages = statm->number_after(" ");  // the second number
             return pages ? Bytes(*pages * page) : std::nullopt;
           }},
          {"machine",
           [machine]() -> Bytes {
             const Bytes total = machine->number_after("MemTotal:");
             const Bytes available = machine->number_after("MemAvailable:");
             if (!total || !available) return std::nullopt;
             return (*total - std::min(*total, *available)) * 1024;
           }},
          {"page cache", [machine]() -> Bytes {
             const Bytes kib = machine->number_after("\nCached:");
             return kib ? Bytes(*kib * 1024) : std::nullopt;
           }}};
}

MemoryOfProcesses child_memory() {
  siginfo_t info{};
  const bool has_children = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  return has_children ? memory_of_descendants(getpid()) : MemoryOfProcesses{};
}

std::string add_child_memory(const MemoryOfProcesses& before, const MemoryOfProcesses& after,
                             double window_s, double room, std::map<std::string, double>& facts) {
  struct Sum {
    double processes = 0, bytes = 0, grown = 0, compared = 0;
  } all, workers;
  for (const auto& [pid, now] : after) {
    const auto old = before.find(pid);
    const auto bytes = static_cast<double>(now.bytes);
    for (Sum* const sum : {&all, now.is_worker ? &workers : nullptr}) {
      if (sum == nullptr) continue;
      sum->processes += 1;
      sum->bytes += bytes;
      if (old == before.end()) continue;  // a process that began in the window is not a leak
      sum->compared += 1;
      sum->grown += bytes - static_cast<double>(old->second.bytes);
    }
  }
  if (after.empty() || !(window_s > 0)) return "";
  constexpr double kMinute = 60, kMb = 1e6;
  facts["child_processes"] = all.processes;
  facts["child_memory_bytes"] = all.bytes;
  if (all.compared > 0) facts["child_growth_bytes_per_min"] = all.grown * kMinute / window_s;
  if (workers.processes > 0) {
    facts["worker_processes"] = workers.processes;
    facts["worker_memory_bytes"] = workers.bytes / workers.processes;
  }
  if (workers.compared > 0) {
    facts["worker_growth_bytes_per_min"] = workers.grown / workers.compared * kMinute / window_s;
  }
  const std::optional<double> left = seconds_to_fill(all.grown, window_s, room);
  if (!left || *left >= kSecondsToFillSoon) return "";
  return fmt::format(
      "the {:.0f} child processes hold {:.0f} MB and grow by {:.0f} MB a minute, which fills the "
      "memory that is left ({:.0f} MB) in {:.0f} min; measure longer to see whether that goes on",
      all.processes, all.bytes / kMb, all.grown / kMb * kMinute / window_s, room / kMb,
      *left / kMinute);
}

}  // namespace penstock
