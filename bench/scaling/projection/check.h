// SPDX-License-Identifier: Apache-2.0
// Compares the projection's formulas with published figures. Constants are fitted to some points of
// a series. The error at these points shows only how well the formula can fit. The error at the
// other points shows how well it predicts.
//
//   step = b p (1 + j slowest_of(n)) + max(0, 2 (n-1)/n S/B - kHidden b p);  img/s = n b / step
//
// with b images per device, p ms per image, j the jitter, S bytes of gradients, B bytes/s. The
// published figures are in published_scaling.json, which CMake embeds.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace penstock::scaling {

struct PublishedPoint {
  std::int32_t ranks = 1;
  std::int32_t batch = 1;  ///< images per device
  double img_per_s = 0;    ///< of all devices
  bool fitted = false;     ///< true: used to fit the formula's constants; false: predicted
  /// If the points of a series have different models: this point's name, size and speed.
  std::string model{};
  double gradient_mb = 0;   ///< 0: that of the series
  double ms_per_image = 0;  ///< of one device alone, given and not fitted; 0: the series' constant
};

/// The constants to fit for a series; the others have no effect.
struct OpenConstants {
  bool per_image = true;   ///< ms per image of a device
  bool bandwidth = false;  ///< bytes/s of an exchange
  bool jitter = false;     ///< standard deviation of a step, as a share of it
};

struct PublishedSeries {
  std::string name, source;
  std::string caveat{};
  double gradient_mb = 0;
  OpenConstants open;
  std::vector<PublishedPoint> points{};
};

std::span<const PublishedSeries> published_scaling();

/// Published figures that are not used, and why; one sentence each.
std::span<const std::string> left_out();

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
