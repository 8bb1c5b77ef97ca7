// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/clock_bounds.h"

#include <algorithm>

namespace penstock::remote {
namespace {

/// Later times are ignored, so that differences cannot overflow: the year 2116.
constexpr std::int64_t kLatest = std::int64_t{1} << 62;

std::optional<std::int64_t> difference(std::int64_t theirs, std::int64_t ours) noexcept {
  if (theirs <= 0 || theirs > kLatest || ours <= 0 || ours > kLatest) return std::nullopt;
  return theirs - ours;
}

}  // namespace

void ClockBounds::before(std::int64_t theirs, std::int64_t ours) noexcept {
  const std::optional<std::int64_t> least = difference(theirs, ours);
  if (!least) return;
  least_ = least_ ? std::max(*least_, *least) : *least;
  if (!most_ || *least_ <= *most_) return;
  least_ = least;
  most_.reset();
}

void ClockBounds::after(std::int64_t theirs, std::int64_t ours) noexcept {
  const std::optional<std::int64_t> most = difference(theirs, ours);
  if (!most) return;
  most_ = most_ ? std::min(*most_, *most) : *most;
  if (!least_ || *least_ <= *most_) return;
  most_ = most;
  least_.reset();
}

std::optional<ClockBounds::Estimate> ClockBounds::estimate() const noexcept {
  if (!least_ || !most_) return std::nullopt;
  return Estimate{.offset_ns = (static_cast<double>(*least_) + static_cast<double>(*most_)) / 2,
                  .bound_ns = static_cast<double>(*most_ - *least_) / 2};
}

}  // namespace penstock::remote
