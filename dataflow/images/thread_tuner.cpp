// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/thread_tuner.h"

#include <utility>

namespace penstock {

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
