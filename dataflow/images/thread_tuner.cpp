// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/thread_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "dataflow/error.h"

namespace penstock {
namespace {

/// If one more thread would be needed for less than this fraction, it is not taken.
constexpr double kRounding = 0.05;

}  // namespace

ThreadChoice::ThreadChoice(std::int32_t most, std::size_t readers)
    : most_(most), readers_(static_cast<double>(readers)) {
  PENSTOCK_ASSERT(most > 0 && readers > 0);
}

void ThreadChoice::begin(const RingStats& ring, Time now) noexcept {
  measuring_ = true;
  first_batch_ = ring.published;
  reserve_ = ring.filled_slots;
  began_ = now;
  waited_ = ring.consumer_wait;
}

void ThreadChoice::settle(Ending ending) noexcept {
  ending_ = ending;
  settled_ = true;
}

void ThreadChoice::observe(const RingStats& ring, Time now) {
  if (settled_ || ring.published < skip_until_) return;
  if (!measuring_) return begin(ring, now);
  if (ring.published < first_batch_ + kBatches || now - began_ < kTime) return;
  const double passed = to_seconds(now - began_);
  const auto published = static_cast<double>(ring.published - first_batch_);
  const bool reserve_shrank = ring.filled_slots < reserve_;
  const double stored = static_cast<double>(ring.filled_slots) - static_cast<double>(reserve_);
  wait_ = std::clamp(to_seconds(ring.consumer_wait - waited_) / (readers_ * passed), 0.0, 1.0);
  begin(ring, now);
  if (wait_ <= kNoWait) {
    waited_before_ = false;
    if (!reserve_shrank) take_enough((published - stored) / passed);
    return;
  }
  rate_of_one_ = published / passed / threads_;
  if (std::exchange(waited_before_, true)) take_more();
}

/// Readers wait: more threads are needed.
void ThreadChoice::take_more() noexcept {
  if (threads_ == most_) return settle(Ending::no_more);
  too_few_ = std::max(too_few_, threads_);
  wait_with_too_few_ = wait_;
  threads_ = is_fitted_ ? threads_ + 1 : std::min(2 * threads_, most_);
  restart();
}

/// Readers do not wait, and take `demand` batches per second.
void ThreadChoice::take_enough(double demand) noexcept {
  if (is_fitted_ || too_few_ == 0) return settle(Ending::enough);
  is_fitted_ = true;
  const auto needed = static_cast<std::int32_t>(std::ceil(demand / rate_of_one_ - kRounding));
  if (needed >= threads_) return settle(Ending::enough);
  threads_ = std::max(needed, too_few_ + 1);
  restart();
}

/// Restarts the measurement with another number of threads.
void ThreadChoice::restart() noexcept {
  measuring_ = waited_before_ = false;
  skip_until_ = first_batch_ + kSkipped;
}

std::string ThreadChoice::text() const {
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

void ThreadTuner::begin(BatchRing& ring) {
  const std::lock_guard lock(mutex_);
  ring_ = &ring;
  choice_.emplace(most_, ring.readers());
  ring.monitor().watch(false);
}

std::int32_t ThreadTuner::observe(Time now) {
  const std::lock_guard lock(mutex_);
  if (choice_->is_settled()) return choice_->threads();
  choice_->observe(ring_->monitor().stats(), now);
  if (choice_->is_settled()) say();
  return choice_->threads();
}

bool ThreadTuner::is_settled() const {
  const std::lock_guard lock(mutex_);
  return choice_ && choice_->is_settled();
}

std::int32_t ThreadTuner::settle() {
  const std::lock_guard lock(mutex_);
  if (!choice_) choice_.emplace(most_, 1);
  choice_->stop();
  say();
  return choice_->threads();
}

/// Under mutex_, since code that learns that the choice is settled may start to watch the ring
/// itself.
void ThreadTuner::say() {
  if (std::exchange(said_, true)) return;
  if (ring_ != nullptr) ring_->monitor().stop_watching();
  probe_.note("decode threads: " + choice_->text());
  probe_.fact("decode_threads_chosen", choice_->threads());
  probe_.fact("decode_threads_most", most_);
}

}  // namespace penstock
