// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/scale.h"

#include <algorithm>
#include <cmath>

namespace penstock::report {
namespace {

/// The smallest of 1, 2 or 5 times a power of ten that is at least `span` / `count`.
double step_of(double span, int count) {
  const double raw = span / std::max(count, 1);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

Scale::Scale(double low, double high, double from, double to) noexcept
    : low_(std::isfinite(low) ? low : 0), high_(high), from_(from), to_(to) {
  if (!std::isfinite(high_) || high_ <= low_) high_ = low_ + 1;
}

double Scale::operator()(double value) const noexcept {
  if (std::isnan(value)) return from_;
  const double share = (std::clamp(value, low_, high_) - low_) / (high_ - low_);
  return from_ + share * (to_ - from_);
}

Ticks ticks_between(double low, double high, int count, bool whole) {
  Ticks ticks;
  ticks.step = step_of(high - low, count - 1);
  if (whole) ticks.step = std::max(1.0, std::ceil(ticks.step));
  if (ticks.step < 1) {
    ticks.decimals = static_cast<int>(std::ceil(-std::log10(ticks.step) - 1e-9));
  }
  const double first = std::ceil(low / ticks.step - 1e-9);
  for (double k = first; k * ticks.step <= high + 1e-9 * ticks.step; ++k) {
    ticks.values.push_back(k * ticks.step);
  }
  return ticks;
}

double rounded_up(double value, int count) {
  if (!(value > 0) || !std::isfinite(value)) return 1;
  const double step = step_of(value, count);
  return std::ceil(value / step - 1e-9) * step;
}

}  // namespace penstock::report
