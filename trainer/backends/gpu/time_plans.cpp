// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/time_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {
namespace {

constexpr int kRuns = 8;  ///< runs between two events
constexpr std::size_t kFinalists = 3;
constexpr int kRounds = 3;  ///< rounds of the finalists; their medians count
/// Drops a candidate if its second run takes longer than the best one's by this factor.
constexpr double kHopeless = 2;
/// The host needs 10 to 25 us to enqueue a run. It is slower than the device only in shorter runs.
constexpr double kShortMicroseconds = 100;
constexpr std::size_t kAlignment = 256;
/// Bytes that are copied from the host; the rest of the operands repeats them.
constexpr std::size_t kPatternBytes = std::size_t{4} << 20;
/// Larger than the caches, but a small part of the device's memory.
constexpr std::size_t kCopyBytes = std::size_t{128} << 20, kCopyShare = 64;

Buffer device_memory(Driver& driver, std::size_t bytes) {
  return Buffer(driver.allocate(std::max<std::size_t>(bytes, 1), MemoryKind::device), bytes,
                [&driver](std::byte* data) { driver.free(data, MemoryKind::device); });
}

class Timer {
 public:
  /// `records`: short runs may be recorded.
  explicit Timer(Driver& driver, bool records = false)
      : stream(driver, records), begin_(driver), end_(driver) {}

  /// The mean time of one of `runs`. An additional run before them keeps the device busy until the
  /// host has enqueued the first.
  template <typename Work>
  double microseconds(const Work& work, int runs = kRuns) {
    work();
    stream.record(begin_);
    for (int run = 0; run < runs; ++run) work();
    stream.record(end_);
    end_.wait_until(Time::max());
    const std::chrono::duration<double, std::micro> time = end_.since(begin_);
    return time.count() / runs;
  }

  /// The same for runs that the device may finish faster than the host enqueues them: the host
  /// launches all of them at once. Runs that cannot be recorded are enqueued one by one.
  template <typename Work>
  double short_microseconds(const Work& work) {
    std::unique_ptr<Program> all;
    try {
      all = stream.capture([&] {
        for (int run = 0; run < kRuns; ++run) work();
      });
    } catch (const DeviceError&) {
      return microseconds(work);
    }
    return microseconds([&] { all->launch(stream); }, 1) / kRuns;
  }

  GpuStream stream;

 private:
  GpuEvent begin_, end_;
};

using Rounds = std::array<double, kRounds>;

double median_of(Rounds times) {
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

/// Numbers between -1 and 1 in f16; read as bf16 or f32 they are finite and small, too. Zeros would
/// draw less power and so distort the timing.
std::vector<std::byte> random_pattern() {
  std::vector<std::byte> pattern(kPatternBytes);
  Random random(1);
  for (std::size_t i = 0; i + 1 < pattern.size(); i += 2) {
    const std::uint64_t bits = random.bits();
    const auto exponent = static_cast<std::uint16_t>(10 + bits % 5);  // 2^-5 to 2^-1
    const auto half = static_cast<std::uint16_t>((bits >> 8 & 0x83ff) | exponent << 10);
    pattern[i] = static_cast<std::byte>(half & 0xff);
    pattern[i + 1] = static_cast<std::byte>(half >> 8);
  }
  return pattern;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void fill(Driver& driver, StreamHandle stream, const Buffer& memory) {
  static const std::vector<std::byte> pattern = random_pattern();
  std::byte* const data = memory.bytes().data();
  const std::size_t bytes = memory.bytes().size();
  std::size_t done = std::min(pattern.size(), bytes);
  driver.copy(stream, data, pattern.data(), done);
  while (done < bytes) {
    const std::size_t next = std::min(done, bytes - done);
    driver.copy(stream, data + done, data, next);
    done += next;
  }
}

/// Device memory that all candidates for a graph run on.
class Operands {
 public:
  Operands(const DnnGraph& graph, std::size_t workspace, Driver& driver, StreamHandle stream)
      : memory_(device_memory(driver, bytes_of(graph))),
        workspace_(device_memory(driver, workspace)) {
    fill(driver, stream, memory_);
    std::size_t offset = 0;
    for (const DnnTensor& tensor : graph.tensors) {
      tensors_.push_back(tensor.is_virtual ? nullptr : memory_.bytes().data() + offset);
      if (!tensor.is_virtual) offset += aligned(tensor.bytes());
    }
  }
  std::span<std::byte* const> tensors() const noexcept { return tensors_; }
  std::byte* workspace() const noexcept { return workspace_.bytes().data(); }

 private:
  static std::size_t bytes_of(const DnnGraph& graph) {
    std::size_t bytes = 0;
    for (const DnnTensor& tensor : graph.tensors) {
      if (!tensor.is_virtual) bytes += aligned(tensor.bytes());
    }
    return bytes;
  }

  const Buffer memory_, workspace_;
  std::vector<std::byte*> tensors_;
};

std::size_t largest_workspace(std::span<const Candidate> candidates) {
  std::size_t bytes = 0;
  for (const Candidate& candidate : candidates) bytes = std::max(bytes, candidate.workspace_bytes);
  return bytes;
}

/// Finds the fastest of the candidates for one graph.
class Contest {
 public:
  Contest(const DnnGraph& graph, std::size_t workspace, Driver& driver, PlanBook& book,
          bool records)
      : graph_(graph),
        driver_(driver),
        book_(book),
        timer_(driver, records),
        operands_(graph, workspace, driver, timer_.stream.handle()) {}

  /// Times the candidate and keeps it if it is among the best.
  void enter(Candidate candidate) {
    attempt(candidate.choice, [&] {
      if (candidate.plan == nullptr) candidate.plan = driver_.build(graph_, candidate.choice);
      const double first = timer_.microseconds([&] { run(candidate); }, 1);
      if (!best_.empty() &&
          first > kHopeless * std::max(best_.front().microseconds, kShortMicroseconds)) {
        return;
      }
      best_.push_back({candidate, time(candidate, first)});
      std::ranges::sort(best_, {}, &Entry::microseconds);
      if (best_.size() > kFinalists) best_.pop_back();
    });
  }

  /// Throws DeviceError if no candidate is left.
  PlanChoice fastest() {
    if (best_.size() > 1) alternate();
    if (best_.empty()) throw DeviceError("no engine could run: " + failure_);
    const Entry& first = best_.front();
    return {first.candidate.choice, first.candidate.workspace_bytes, first.microseconds};
  }

 private:
  struct Entry {
    Candidate candidate;
    double microseconds = 0;
    Rounds rounds{};
  };

  void run(const Candidate& candidate) {
    driver_.execute(timer_.stream.handle(), *candidate.plan, operands_.tensors(),
                    operands_.workspace());
  }
  /// `about`: an earlier measurement of the same.
  double time(const Candidate& candidate, double about) {
    const auto work = [&] { run(candidate); };
    return about < kShortMicroseconds ? timer_.short_microseconds(work) : timer_.microseconds(work);
  }

  /// Returns false if it failed.
  template <typename Work>
  bool attempt(const EngineChoice& choice, const Work& work) {
    try {
      work();
      return true;
    } catch (const DeviceError& error) {
      failure_ =
          fmt::format("engine {} for '{}': {}", choice.engine, to_text(graph_), error.what());
      book_.add_failure(graph_, choice);
      book_.save();  // if the device is lost, the next run leaves this engine out
      // Runs of its plan end first.
      expect_alive(driver_, DeviceError(failure_), timer_.stream.handle());
      return false;
    }
  }

  void alternate() {
    for (std::size_t round = 0; round < kRounds; ++round) {
      std::erase_if(best_, [&](Entry& entry) {
        return !attempt(entry.candidate.choice,
                        [&] { entry.rounds[round] = time(entry.candidate, entry.microseconds); });
      });
    }
    for (Entry& entry : best_) entry.microseconds = median_of(entry.rounds);
    std::ranges::sort(best_, {}, &Entry::microseconds);
  }

  const DnnGraph& graph_;
  Driver& driver_;
  PlanBook& book_;
  Timer timer_;
  const Operands operands_;
  std::vector<Entry> best_;  // the fastest first
  std::string failure_;
};

}  // namespace

PlanChoice fastest_of(const DnnGraph& graph, std::vector<Candidate> candidates, Driver& driver,
                      PlanBook& book, bool records) {
  Contest contest(graph, largest_workspace(candidates), driver, book, records);
  for (Candidate& candidate : candidates) contest.enter(std::move(candidate));
  return contest.fastest();
}

double time_copies(Driver& driver) {
  const std::size_t bytes = std::min(kCopyBytes, driver.facts().memory_bytes / kCopyShare);
  const Buffer from = device_memory(driver, bytes), to = device_memory(driver, bytes);
  Timer timer(driver);
  const StreamHandle stream = timer.stream.handle();
  fill(driver, stream, from);
  Rounds rounds{};
  for (double& us : rounds) {
    us = timer.microseconds(
        [&] { driver.copy(stream, to.bytes().data(), from.bytes().data(), bytes); });
  }
  return 2 * static_cast<double>(bytes) / median_of(rounds);
}

}  // namespace penstock::gpu
