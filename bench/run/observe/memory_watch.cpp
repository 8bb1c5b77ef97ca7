// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/memory_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "dataflow/machine/file_descriptor.h"

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

}  // namespace penstock
