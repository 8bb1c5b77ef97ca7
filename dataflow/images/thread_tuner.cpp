// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/thread_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "dataflow/error.h"

namespace penstock {
namespace {

/// If readers wait for less than this share of the time, they count as not waiting.
constexpr double kNoWait = 0.02;
/// If one more thread would be needed for less than this fraction, it is not taken.
constexpr double kRounding = 0.05;
/// An interval needs at least this many batches and this much time. The first kSkipped batches
/// after each change do not count.
constexpr std::uint64_t kSkipped = 2, kBatches = 8;
constexpr Nanoseconds kTime = std::chrono::milliseconds(100);

}  // namespace

void ThreadTuner::begin(BatchRing& ring) {
  PENSTOCK_ASSERT(most_ > 0 && ring.readers() > 0);
  const std::lock_guard lock(mutex_);
  PENSTOCK_ASSERT(ring_ == nullptr);
  ring_ = &ring;
  settled_ = false;
  skip_until_ = kSkipped;
  ring.monitor().watch(false);
}

std::int32_t ThreadTuner::observe(Time now) {
  const std::lock_guard lock(mutex_);
  if (settled_) return threads_;
  measure(ring_->monitor().stats(), now);
  if (settled_) say();
  return threads_;
}

bool ThreadTuner::is_settled() const {
  const std::lock_guard lock(mutex_);
  return settled_;
}

std::int32_t ThreadTuner::settle() {
  const std::lock_guard lock(mutex_);
  settled_ = true;
  say();
  return threads_;
}

void ThreadTuner::begin_interval(const RingStats& ring, Time now) noexcept {
  measuring_ = true;
  first_batch_ = ring.published;
  reserve_ = ring.filled_slots;
  began_ = now;
  waited_ = ring.consumer_wait;
}

void ThreadTuner::end(Ending ending) noexcept {
  ending_ = ending;
  settled_ = true;
}

void ThreadTuner::measure(const RingStats& ring, Time now) {
  if (ring.published < skip_until_) return;
  if (!measuring_) return begin_interval(ring, now);
  if (ring.published < first_batch_ + kBatches || now - began_ < kTime) return;
  const double passed = to_seconds(now - began_);
  const auto published = static_cast<double>(ring.published - first_batch_);
  const bool reserve_shrank = ring.filled_slots < reserve_;
  const double stored = static_cast<double>(ring.filled_slots) - static_cast<double>(reserve_);
  const auto readers = static_cast<double>(ring_->readers());
  wait_ = std::clamp(to_seconds(ring.consumer_wait - waited_) / (readers * passed), 0.0, 1.0);
  begin_interval(ring, now);
  if (wait_ <= kNoWait) {
    waited_before_ = false;
    if (!reserve_shrank) take_enough((published - stored) / passed);
    return;
  }
  rate_of_one_ = published / passed / threads_;
  if (std::exchange(waited_before_, true)) take_more();
}

/// Readers wait: more threads are needed.
void ThreadTuner::take_more() noexcept {
  if (threads_ == most_) return end(Ending::no_more);
  too_few_ = std::max(too_few_, threads_);
  wait_with_too_few_ = wait_;
  threads_ = is_fitted_ ? threads_ + 1 : std::min(2 * threads_, most_);
  restart();
}

/// Readers do not wait, and take `demand` batches per second.
void ThreadTuner::take_enough(double demand) noexcept {
  if (is_fitted_ || too_few_ == 0) return end(Ending::enough);
  is_fitted_ = true;
  const auto needed = static_cast<std::int32_t>(std::ceil(demand / rate_of_one_ - kRounding));
  if (needed >= threads_) return end(Ending::enough);
  threads_ = std::max(needed, too_few_ + 1);
  restart();
}

/// Restarts the measurement with another number of threads.
void ThreadTuner::restart() noexcept {
  measuring_ = waited_before_ = false;
  skip_until_ = first_batch_ + kSkipped;
}

/// "6 (auto: readers wait for 0.4 % of the time; 17.0 % with 5)".
std::string ThreadTuner::text() const {
  std::string reason;
  if (ending_ == Ending::too_early) {
    reason = "not settled when the window began";
  } else {
    reason = fmt::format("readers wait for {:.1f} % of the time", 100 * wait_);
    if (ending_ == Ending::no_more) reason += ", and all threads are in use";
  }
  if (too_few_ > 0) reason += fmt::format("; {:.1f} % with {}", 100 * wait_with_too_few_, too_few_);
  return fmt::format("{} (auto: {})", threads_, reason);
}

/// Under mutex_, since code that learns that the choice is settled may start to watch the ring
/// itself.
void ThreadTuner::say() {
  if (std::exchange(said_, true)) return;
  if (ring_ != nullptr) ring_->monitor().stop_watching();
  probe_.note("decode threads: " + text());
  probe_.fact("decode_threads_chosen", threads_);
  probe_.fact("decode_threads_most", most_);
}

}  // namespace penstock
