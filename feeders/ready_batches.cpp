// SPDX-License-Identifier: Apache-2.0
#include "feeders/ready_batches.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/pace.h"

namespace penstock {

ReadyBatches::ReadyBatches(BatchRing& ring, const PushPlan& plan, Clock& clock)
    : ring_(ring), plan_(plan), clock_(clock), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!bell_) throw ConfigError("cannot open an eventfd; is the process out of descriptors?");
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
      {
        const std::lock_guard lock(mutex_);
        leases_.push_back(std::move(lease));
      }
      ring_bell();
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  ended_.store(true, std::memory_order_release);
  ring_bell();
}

void ReadyBatches::ring_bell() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(bell_.get(), &one, sizeof one);
}

void ReadyBatches::reset() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = read(bell_.get(), &count, sizeof count);
}

bool ReadyBatches::has_one() const {
  const std::lock_guard lock(mutex_);
  return !leases_.empty();
}

ReadLease ReadyBatches::pop() {
  const std::lock_guard lock(mutex_);
  ReadLease lease = std::move(leases_.front());
  leases_.pop_front();
  return lease;
}

bool ReadyBatches::is_over() const {
  if (!ended_.load(std::memory_order_acquire) || has_one()) return false;
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

}  // namespace penstock
