// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::report {
namespace {

constexpr std::string_view kMinus = "\xE2\x88\x92";

}  // namespace

int decimals_for(double largest, int significant) {
  const double size = std::fabs(largest);
  if (!std::isfinite(size) || size == 0) return significant > 1 ? 1 : 0;
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return std::clamp(significant - before, 0, 6);
}

std::string fixed_text(double value, int decimals) {
  if (std::isnan(value)) return "unknown";
  if (std::isinf(value)) return value > 0 ? "unlimited" : fmt::format("{}unlimited", kMinus);
  if (std::fabs(value) >= 1e12) return fmt::format("{:.2e}", value);
  std::string digits = fmt::format("{:.{}f}", std::fabs(value), decimals);
  const bool zero = digits.find_first_not_of("0.") == std::string::npos;
  std::size_t point = std::min(digits.find('.'), digits.size());
  while (point > 3) digits.insert(point -= 3, 1, ',');
  return fmt::format("{}{}", value < 0 && !zero ? kMinus : "", digits);
}

std::string number_text(double value, int significant) {
  return fixed_text(value, decimals_for(value, significant));
}

std::string quantity_text(double value, std::string_view unit, int significant) {
  return fmt::format("{} {}", number_text(value, significant), unit);
}

std::string interval_text(const statistics::Estimate& estimate, int decimals) {
  const bool low = std::isfinite(estimate.low), high = std::isfinite(estimate.high);
  if (estimate.is_spread && estimate.samples == 1) return "(once)";
  if (low && high) {
    return fmt::format("({}{}{})", fixed_text(estimate.low, decimals),
                       estimate.is_spread ? ".." : " to ", fixed_text(estimate.high, decimals));
  }
  if (low) return fmt::format("({} or more)", fixed_text(estimate.low, decimals));
  if (high) return fmt::format("({} or less)", fixed_text(estimate.high, decimals));
  return "(no interval)";
}

bool has_interval(const statistics::Estimate& estimate) {
  return std::isfinite(estimate.low) && std::isfinite(estimate.high);
}

int decimals_of(const statistics::Estimate& estimate, int most) {
  double largest = std::fabs(estimate.value);
  for (const double end : {estimate.low, estimate.high}) {
    if (std::isfinite(end)) largest = std::max(largest, std::fabs(end));
  }
  const int decimals = std::min(decimals_for(largest), most);
  const bool narrow = !has_interval(estimate) || estimate.half_width() <= 0;
  return narrow ? decimals : std::min(decimals, decimals_for(estimate.half_width(), 2));
}

std::string estimate_text(const statistics::Estimate& estimate, std::string_view unit,
                          int most_decimals) {
  const int decimals = decimals_of(estimate, most_decimals);
  return fmt::format("{}{}{} {}", fixed_text(estimate.value, decimals), unit.empty() ? "" : " ",
                     unit, interval_text(estimate, decimals));
}

}  // namespace penstock::report
