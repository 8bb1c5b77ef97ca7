// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/queue_replay.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/statistics/series.h"
#include "dataflow/error.h"
#include "dataflow/random.h"

namespace penstock::statistics {
namespace {

/// Draws runs of consecutive measured times; runs wrap around at the end.
class Draws {
 public:
  /// Keeps a reference to `times`, which is not empty.
  Draws(std::span<const double> times, std::uint64_t seed, std::uint64_t stream)
      : times_(times), random_(seed, stream), run_(run_length(times)) {}

  double next() {
    if (left_ == 0) {
      left_ = run_;
      at_ = random_.below(times_.size());
    }
    --left_;
    const double time = times_[at_];
    at_ = (at_ + 1) % times_.size();
    return time;
  }

 private:
  /// Long enough for the autocorrelation. At least the cube root of the number of values, which is
  /// how the best length of a block bootstrap grows (Hall, Horowitz and Jing 1995).
  static std::size_t run_length(std::span<const double> times) {
    const auto root = std::cbrt(static_cast<double>(times.size()));
    const double length = std::ceil(std::max(root, 2 * autocorrelation_time(times)));
    return std::min(times.size(), static_cast<std::size_t>(length));
  }

  std::span<const double> times_;
  Random random_;
  std::size_t run_, left_ = 0, at_ = 0;
};

}  // namespace

double replay_queue(std::span<const double> producer_ms, std::span<const double> consumer_ms,
                    const ReplayPlan& plan) {
  PENSTOCK_ASSERT(!producer_ms.empty() && !consumer_ms.empty() && plan.slots > 0);
  for (const auto times : {producer_ms, consumer_ms}) {
    for (const double time : times) PENSTOCK_ASSERT(time >= 0 && std::isfinite(time));
  }
  Draws produce(producer_ms, plan.seed, 0), consume(consumer_ms, plan.seed, 1);
  std::vector<double> taken(plan.slots, 0.0);  // times at which the last `slots` batches were
                                               // taken; a ring
  const std::size_t batches = std::max<std::size_t>(plan.batches, 2);
  const std::size_t warm_up = std::max<std::size_t>(batches / 10, 1);
  double published = 0, done = 0, done_before = 0;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    if (batch == warm_up) done_before = done;
    double& slot = taken[batch % plan.slots];
    published = std::max(published + produce.next(), slot);
    slot = std::max(published, done);
    done = slot + consume.next();
  }
  return (done - done_before) / static_cast<double>(batches - warm_up);
}

}  // namespace penstock::statistics
