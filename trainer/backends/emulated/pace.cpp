// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/emulated/pace.h"

#include <chrono>

namespace penstock::emulated {
namespace {

Nanoseconds busy(double seconds) {
  return std::chrono::round<Nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

Nanoseconds Pace::step_time(std::uint64_t seed, std::uint64_t rank, std::uint64_t step,
                            std::int32_t images) const {
  const double each = recorded.empty() ? seconds_per_image * jitter.factor(Random(seed, rank, step))
                                       : recorded[step % recorded.size()];
  return busy(each * images) + exchange;
}

Nanoseconds Pace::mean_step_time(std::int32_t images) const {
  return busy(seconds_per_image * images) + exchange;
}

}  // namespace penstock::emulated
