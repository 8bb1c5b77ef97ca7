// SPDX-License-Identifier: Apache-2.0
// How long each step of an emulated device takes. A function of the step's number alone, so that
// runs repeat whatever their threads do.
#pragma once

#include <cstdint>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/backends/emulated/jitter.h"

namespace penstock::emulated {

struct Pace {
  double seconds_per_image = 0;  ///< the mean
  Jitter jitter{};
  /// Recorded seconds per image, step by step and from the beginning again behind the last one, on
  /// every rank alike; empty: the mean and its jitter.
  std::vector<double> recorded{};
  Nanoseconds exchange{};  ///< in every step, besides

  /// Of step `step`, from 0, with `images` images, on a device of that rank.
  Nanoseconds step_time(std::uint64_t seed, std::uint64_t rank, std::uint64_t step,
                        std::int32_t images) const;
  /// Its mean.
  Nanoseconds mean_step_time(std::int32_t images) const;
};

}  // namespace penstock::emulated
