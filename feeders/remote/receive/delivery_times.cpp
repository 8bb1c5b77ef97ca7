// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/delivery_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "dataflow/random.h"

namespace penstock::remote {
namespace {

/// Longer times are ignored, so that the difference of two fits.
constexpr std::int64_t kLongest = std::int64_t{1} << 61;
/// DeliveryTimes ignores longer times, so that sums fit.
constexpr std::int64_t kLongestSummed = std::int64_t{1} << 44;  // ns: about five hours
/// Each fact takes a lock, so small improvements are not reported.
constexpr double kBetter = 0.8;

/// Empty: the difference does not fit.
std::optional<std::int64_t> difference(std::int64_t later, std::int64_t earlier) noexcept {
  std::int64_t result = 0;
  if (__builtin_sub_overflow(later, earlier, &result) || result > kLongest || result < -kLongest) {
    return std::nullopt;
  }
  return result;
}

/// How long a batch was made (-1: not known), waited for its producer's socket, and was in transit,
/// in ns.
struct Durations {
  std::int64_t making, waiting, way;
};

/// Empty: the batch does not say when it was ready and sent, or its times run backwards.
std::optional<Durations> durations_of(const FramedHeader& header,
                                      std::int64_t received_ns) noexcept {
  if (header.ready_ns == 0 || header.sent_ns == 0) return std::nullopt;
  const bool is_begun = header.begun_ns != 0;
  const auto making = difference(header.ready_ns, is_begun ? header.begun_ns : header.ready_ns);
  const auto waiting = difference(header.sent_ns, header.ready_ns);
  const auto way = difference(received_ns, header.sent_ns);
  if (!making || !waiting || !way || *making < 0 || *waiting < 0) return std::nullopt;
  return Durations{is_begun ? *making : -1, *waiting, *way};
}

/// The shortest transit time of the producer, this one included. Null: it is one producer too many.
const std::int64_t* shortest_way(std::map<std::uint64_t, std::int64_t>& ways,
                                 std::uint64_t producer, std::int64_t way) {
  if (!ways.contains(producer) && ways.size() >= kTimedProducers) return nullptr;
  std::int64_t& shortest = ways.try_emplace(producer, way).first->second;
  shortest = std::min(shortest, way);
  return &shortest;
}

/// Distribution of times in ns, by nearest rank.
HandOffSummary::Times distribution_of(std::vector<double> times) {
  if (times.empty()) return {};
  const auto rank = [&](double share) {
    const auto count = static_cast<double>(times.size());
    const auto at = static_cast<std::ptrdiff_t>(std::max(0.0, std::ceil(share * count) - 1));
    std::nth_element(times.begin(), times.begin() + at, times.end());
    return 1e-9 * times[static_cast<std::size_t>(at)];
  };
  return {rank(0.5), rank(0.99)};
}

void count(StageCounters& stage, std::int64_t images, std::int64_t ns) noexcept {
  stage.items.add();
  stage.images.add(images);
  stage.wall_ns.add(ns);
}

}  // namespace

void HandOffTimes::add(const FramedHeader& header, std::int64_t received_ns, bool one_clock) {
  const std::optional<Durations> times = durations_of(header, received_ns);
  if (!times || (one_clock && times->way < 0)) return;
  const std::lock_guard lock(mutex_);
  if (!one_clock) {
    if (shortest_way(shortest_, header.producer, times->way) == nullptr) return;
    ++other_clocks_;
  }
  const Sample sample{one_clock ? 0 : header.producer, times->making, times->waiting, times->way};
  const std::uint64_t index = batches_++;
  if (index < kSamples) {
    samples_.push_back(sample);
    return;
  }
  // Each batch is among the samples with equal probability.
  const std::uint64_t place = Random(1, 0, index).bits() % (index + 1);
  if (place < kSamples) samples_[place] = sample;
}

HandOffSummary HandOffTimes::summary() const {
  const std::lock_guard lock(mutex_);
  std::vector<double> making, waiting, way;
  for (const Sample& sample : samples_) {
    if (sample.making >= 0) making.push_back(static_cast<double>(sample.making));
    waiting.push_back(static_cast<double>(sample.waiting));
    const std::int64_t least = sample.producer == 0 ? 0 : shortest_.at(sample.producer);
    way.push_back(static_cast<double>(sample.way - least));
  }
  return {.batches = batches_,
          .other_clocks = other_clocks_,
          .making = distribution_of(std::move(making)),
          .waiting = distribution_of(std::move(waiting)),
          .way = distribution_of(std::move(way))};
}

DeliveryTimes::DeliveryTimes(Probe& probe, std::int64_t made_ns)
    : probe_(probe),
      made_ns_(made_ns),
      making_(probe.stage({"make", "producer", 1, StageRole::produces})),
      holding_(probe.stage({"hold", "producer", 1, StageRole::holds})),
      carrying_(probe.stage({"carry", "network", 1, StageRole::carries})) {}

void DeliveryTimes::add(const FramedHeader& header, std::int64_t received_ns,
                        const std::optional<ClockBounds::Estimate>& ahead) {
  if (!making_.on) return;
  const std::optional<Durations> times = durations_of(header, received_ns);
  if (!times || std::max(times->making, times->waiting) > kLongestSummed) return;
  std::optional<std::int64_t> way;
  if (ahead) {
    // The offset has an error, so a batch may seem to arrive before it was sent.
    const double known = static_cast<double>(times->way) + ahead->offset_ns;
    if (known < -ahead->bound_ns || known > static_cast<double>(kLongestSummed)) return;
    way = static_cast<std::int64_t>(std::max(0.0, known));
  } else {
    const std::lock_guard lock(mutex_);
    const std::int64_t* const shortest = shortest_way(shortest_, header.producer, times->way);
    if (shortest != nullptr) way = difference(times->way, *shortest);
  }
  if (!way || *way > kLongestSummed) return;
  const auto here = difference(received_ns, made_ns_);
  if (!here || times->waiting + *way > *here) return;
  const auto images = static_cast<std::int64_t>(header.images);
  if (!ahead || ahead->bound_ns > 0) note_clock(header.producer, ahead);
  if (times->making >= 0) count(making_, images, times->making);
  count(holding_, images, times->waiting);
  count(carrying_, images, *way);
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
  if (known == bounds_.end() && bounds_.size() >= kTimedProducers) return;
  if (known != bounds_.end() && ahead->bound_ns >= kBetter * known->second) return;
  bounds_[producer] = ahead->bound_ns;
  double widest = 0;
  for (const auto& [number, bound_ns] : bounds_) widest = std::max(widest, bound_ns);
  probe_.fact("hand_off_clock_bound_us", 1e-3 * widest);
}

}  // namespace penstock::remote
