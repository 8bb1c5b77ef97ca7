// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/delivery_times.h"

#include <algorithm>

namespace penstock::remote {
namespace {

/// Longer times are ignored, so that sums fit.
constexpr std::int64_t kLongest = std::int64_t{1} << 44;  // ns: about five hours
/// Each fact takes a lock, so small improvements are not reported.
constexpr double kBetter = 0.8;

/// Empty: the difference overflows.
std::optional<std::int64_t> difference(std::int64_t later, std::int64_t earlier) noexcept {
  std::int64_t result = 0;
  if (__builtin_sub_overflow(later, earlier, &result)) return std::nullopt;
  return result;
}

/// Whether this can be a duration.
bool is_duration(const std::optional<std::int64_t>& time) noexcept {
  return time && *time >= 0 && *time <= kLongest;
}

void count(StageCounters& stage, std::int64_t images, std::int64_t ns) noexcept {
  stage.items.add();
  stage.images.add(images);
  stage.wall_ns.add(ns);
}

}  // namespace

DeliveryTimes::DeliveryTimes(Probe& probe, std::int64_t made_ns)
    : probe_(probe),
      made_ns_(made_ns),
      making_(probe.stage({"make", kOutside})),
      holding_(probe.stage({"hold", kOutside})),
      carrying_(probe.stage({"carry", kOutside})) {}

void DeliveryTimes::add(const FramedHeader& header, std::int64_t received_ns,
                        const std::optional<ClockBounds::Estimate>& ahead) {
  if (!making_.on || header.ready_ns == 0 || header.sent_ns == 0) return;
  const bool is_begun = header.begun_ns != 0;
  const auto making = difference(header.ready_ns, is_begun ? header.begun_ns : header.ready_ns);
  const auto holding = difference(header.sent_ns, header.ready_ns);
  auto way = difference(received_ns, header.sent_ns);
  if (!is_duration(making) || !is_duration(holding) || !way) return;
  if (ahead) {
    // The offset has an error, so a batch may seem to arrive before it was sent.
    const double known = static_cast<double>(*way) + ahead->offset_ns;
    if (known < -ahead->bound_ns || known > static_cast<double>(kLongest)) return;
    way = static_cast<std::int64_t>(std::max(0.0, known));
  } else {
    way = way_beyond_shortest(header.producer, *way);
  }
  if (!is_duration(way)) return;
  const auto here = difference(received_ns, made_ns_);
  if (!here || *holding + *way > *here) return;
  const auto images = static_cast<std::int64_t>(header.images);
  if (!ahead || ahead->bound_ns > 0) note_clock(header.producer, ahead);
  if (is_begun) count(making_, images, *making);
  count(holding_, images, *holding);
  count(carrying_, images, *way);
}

std::optional<std::int64_t> DeliveryTimes::way_beyond_shortest(std::uint64_t producer,
                                                               std::int64_t way) {
  const std::lock_guard lock(mutex_);
  if (!shortest_.contains(producer) && shortest_.size() >= kProducers) return std::nullopt;
  std::int64_t& shortest = shortest_.try_emplace(producer, way).first->second;
  shortest = std::min(shortest, way);
  return difference(way, shortest);
}

void DeliveryTimes::note_clock(std::uint64_t producer,
                               const std::optional<ClockBounds::Estimate>& ahead) {
  const std::lock_guard lock(mutex_);
  if (!ahead) {
    if (!unknown_noted_) probe_.fact("hand_off_clocks_unknown", 1);
    unknown_noted_ = true;
    return;
  }
  const auto known = bounds_.find(producer);
  if (known == bounds_.end() && bounds_.size() >= kProducers) return;
  if (known != bounds_.end() && ahead->bound_ns >= kBetter * known->second) return;
  bounds_[producer] = ahead->bound_ns;
  double widest = 0;
  for (const auto& [number, bound_ns] : bounds_) widest = std::max(widest, bound_ns);
  probe_.fact("hand_off_clock_bound_us", 1e-3 * widest);
}

}  // namespace penstock::remote
