// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/ready_batches.h"

#include <utility>

#include "dataflow/pace.h"

namespace penstock::remote {

ReadyBatches::ReadyBatches(BatchRing& ring, const PushPlan& plan, Clock& clock)
    : ring_(ring), plan_(plan), clock_(clock) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void ReadyBatches::run(const std::stop_token& stop) noexcept {
  try {
    Pace pace(clock_, plan_.img_per_s);
    for (std::int64_t taken = 0; plan_.batches == 0 || taken < plan_.batches; ++taken) {
      ReadLease lease = ring_.next(0, stop);
      if (!lease) break;
      lease.await();
      pace.await(lease.batch().valid, stop);
      const Time since = plan_.img_per_s > 0 ? clock_.now() : lease.batch().offered;
      {
        const std::lock_guard lock(mutex_);
        ready_.push_back({std::move(lease), since});
      }
      news_.signal();
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  ended_.store(true, std::memory_order_release);
  news_.signal();
}

bool ReadyBatches::has_one() const {
  const std::lock_guard lock(mutex_);
  return !ready_.empty();
}

ReadyBatches::Ready ReadyBatches::pop() {
  const std::lock_guard lock(mutex_);
  Ready first = std::move(ready_.front());
  ready_.pop_front();
  return first;
}

bool ReadyBatches::is_over() const {
  if (!ended_.load(std::memory_order_acquire) || has_one()) return false;
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

}  // namespace penstock::remote
