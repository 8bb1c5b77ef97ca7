// SPDX-License-Identifier: Apache-2.0
// The projection's formulas against figures that others published. Constants are fitted to some
// points of a series; the error at those says that the form can bend that far, and only the error
// at the others says what it predicts.
//
//   step = b p (1 + j slowest_of(n)) + max(0, 2 (n-1)/n S/B - kHidden b p);  img/s = n b / step
//
// with b images of a device, p ms for each, j the jitter, S bytes of gradients, B bytes/s.
#pragma once

#include <ostream>
#include <span>
#include <string_view>
#include <vector>

#include "bench/projection/published_scaling.h"

namespace penstock {

/// Backward, about two thirds of a step, hides exchange, but for the last bucket of it.
inline constexpr double kHidden = 0.6;

struct FittedConstants {
  double ms_per_image = 0;  ///< 0: each point has its own
  double gb_per_s = 0;      ///< 0: exchange takes no time
  double jitter = 0;
};

/// img/s of all devices.
double modelled_img_per_s(const PublishedPoint& point, double gradient_mb,
                          const FittedConstants& constants);

struct CheckedSeries {
  const PublishedSeries* series = nullptr;
  FittedConstants constants;
  std::vector<double> errors;  ///< modelled / published - 1, by point
};

/// Constants that make the largest relative error at the fitted points smallest, by a search over a
/// grid that narrows.
FittedConstants fit(const PublishedSeries& series);
CheckedSeries check(const PublishedSeries& series);

void write_check_text(std::span<const CheckedSeries> checked, std::ostream& out);

}  // namespace penstock
