// SPDX-License-Identifier: Apache-2.0
// The time of each step of an emulated device. It is a function of the seed, the rank, the step and
// the number of images, so that runs repeat with any thread timing.
#pragma once

#include <cstdint>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/backends/emulated/jitter.h"

namespace penstock::emulated {

struct Pace {
  double seconds_per_image = 0;  ///< the mean
  Jitter jitter{};
  /// Recorded seconds per image, one entry per step. The list repeats after its end and is equal on
  /// every rank. Empty: the mean and its jitter.
  std::vector<double> recorded{};
  Nanoseconds exchange{};  ///< added to every step

  /// The time of step `step`, from 0, with `images` images, on the device of rank `rank`.
  Nanoseconds step_time(std::uint64_t seed, std::uint64_t rank, std::uint64_t step,
                        std::int32_t images) const;
  /// The mean of step_time.
  Nanoseconds mean_step_time(std::int32_t images) const;
};

}  // namespace penstock::emulated
