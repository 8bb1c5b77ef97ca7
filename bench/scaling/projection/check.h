// SPDX-License-Identifier: Apache-2.0
// Compares the projection's formulas with published figures. Constants are fitted to some points of
// a series. The error at these points shows only how well the formula can fit. The error at the
// other points shows how well it predicts.
//
//   step = b p (1 + j slowest_of(n)) + max(0, 2 (n-1)/n S/B - kHidden b p);  img/s = n b / step
//
// with b images per device, p ms per image, j the jitter, S bytes of gradients, B bytes/s.
#pragma once

#include <ostream>
#include <span>
#include <string_view>
#include <vector>

#include "bench/scaling/projection/published_scaling.h"

namespace penstock::scaling {

/// Backward takes about two thirds of a step. It hides the exchange of all buckets but the last.
inline constexpr double kHidden = 0.6;

struct FittedConstants {
  double ms_per_image = 0;  ///< 0: given for each point
  double gb_per_s = 0;      ///< 0: exchange takes no time
  double jitter = 0;
};

/// Rate of all devices.
double modelled_img_per_s(const PublishedPoint& point, double gradient_mb,
                          const FittedConstants& constants);

struct CheckedSeries {
  const PublishedSeries* series = nullptr;
  FittedConstants constants;
  std::vector<double> errors;  ///< modelled / published - 1, per point
};

/// Finds the constants that minimise the largest relative error at the fitted points, by a search
/// over a narrowing grid.
FittedConstants fit(const PublishedSeries& series);
CheckedSeries check(const PublishedSeries& series);

void write_check_text(std::span<const CheckedSeries> checked, std::ostream& out);

}  // namespace penstock::scaling
