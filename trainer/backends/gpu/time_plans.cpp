// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/time_plans.h"

#include <algorithm>
#include <array>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/random.h"

namespace penstock::gpu {
namespace {

constexpr int kRuns = 5;
/// After one warm-up, a candidate whose second run takes so many times the best median is dropped.
constexpr double kHopeless = 2;
constexpr std::size_t kAlignment = 256;
/// Host memory that the operands are copied from, again and again.
constexpr std::size_t kPatternBytes = std::size_t{4} << 20;
/// More than caches hold, but a small part of the device's memory.
constexpr std::size_t kCopyBytes = std::size_t{128} << 20, kCopyShare = 64;

double microseconds(Nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

/// Device memory that frees itself.
class Block {
 public:
  Block(Driver& driver, std::size_t bytes)
      : driver_(driver),
        data_(driver.allocate(std::max<std::size_t>(bytes, 1), MemoryKind::device)) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { driver_.free(data_, MemoryKind::device); }
  std::byte* data() const noexcept { return data_; }

 private:
  Driver& driver_;
  std::byte* const data_;
};

class Timer {
 public:
  explicit Timer(Driver& driver)
      : driver_(driver),
        stream(driver.make_stream()),
        begin_(driver.make_event()),
        end_(driver.make_event()) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    driver_.destroy(begin_);
    driver_.destroy(end_);
    driver_.destroy(stream);
  }
  template <typename Work>
  Nanoseconds time(const Work& work) {
    driver_.record(stream, begin_);
    work();
    driver_.record(stream, end_);
    driver_.wait_until(end_, Time::max());
    return driver_.elapsed(begin_, end_);
  }

 private:
  Driver& driver_;

 public:
  const StreamHandle stream;

 private:
  const EventHandle begin_, end_;
};

/// The median, in microseconds.
template <typename Work>
double median_time(Timer& timer, const Work& work) {
  timer.time(work);
  std::array<Nanoseconds, kRuns> times{};
  for (Nanoseconds& time : times) time = timer.time(work);
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return microseconds(times[kRuns / 2]);
}

/// Numbers between -1 and 1 in f16, which read as bf16 or f32 are finite and small, too: speeds are
/// never taken on zeros, since those draw less power.
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

void fill(Driver& driver, StreamHandle stream, std::byte* data, std::size_t bytes) {
  static const std::vector<std::byte> pattern = random_pattern();
  for (std::size_t done = 0; done < bytes; done += pattern.size()) {
    driver.copy(stream, data + done, pattern.data(), std::min(pattern.size(), bytes - done));
  }
}

}  // namespace

PlanChoice fastest_of(const DnnGraph& graph, std::span<const Candidate> candidates,
                      Driver& driver) {
  std::size_t bytes = 0, workspace = 0;
  for (const DnnTensor& tensor : graph.tensors) {
    if (!tensor.is_virtual) bytes += aligned(tensor.bytes());
  }
  for (const Candidate& candidate : candidates) {
    workspace = std::max(workspace, candidate.workspace_bytes);
  }
  const Block operands(driver, bytes), scratch(driver, workspace);
  Timer timer(driver);
  fill(driver, timer.stream, operands.data(), bytes);
  std::vector<std::byte*> tensors;
  std::size_t offset = 0;
  for (const DnnTensor& tensor : graph.tensors) {
    tensors.push_back(tensor.is_virtual ? nullptr : operands.data() + offset);
    if (!tensor.is_virtual) offset += aligned(tensor.bytes());
  }
  PlanChoice best;
  std::string failure;
  for (const Candidate& candidate : candidates) {
    try {
      const std::unique_ptr<DnnPlan> plan = driver.build(graph, candidate.choice);
      const auto run = [&] { driver.execute(timer.stream, *plan, tensors, scratch.data()); };
      timer.time(run);
      const double first = microseconds(timer.time(run));
      if (best.engine.engine >= 0 && first > kHopeless * best.microseconds) continue;
      const double us = median_time(timer, run);
      if (best.engine.engine < 0 || us < best.microseconds) {
        best = {candidate.choice, candidate.workspace_bytes, us};
      }
    } catch (const DeviceError& error) {
      failure = error.what();
    }
  }
  if (best.engine.engine < 0) throw DeviceError("no engine could run: " + failure);
  return best;
}

double time_copies(Driver& driver) {
  const std::size_t bytes = std::min(kCopyBytes, driver.facts().memory_bytes / kCopyShare);
  const Block from(driver, bytes), to(driver, bytes);
  Timer timer(driver);
  fill(driver, timer.stream, from.data(), bytes);
  const double us =
      median_time(timer, [&] { driver.copy(timer.stream, to.data(), from.data(), bytes); });
  return 2 * static_cast<double>(bytes) / us;
}

}  // namespace penstock::gpu
