// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/credit/credit_peer.h"

namespace penstock::remote {
namespace {

/// Number of producers whose clocks appear among the facts of a run.
constexpr CreditScheduler::Producer kMostClocks = 8;

}  // namespace

void CreditPeer::note_batch(const FramedHeader& header, std::int64_t arrival_ns, Probe& probe) {
  last_sent_ns = header.sent_ns;
  last_arrival_ns = arrival_ns;
  const std::uint64_t number = received++;
  // The batch was sent after the first credit that allowed it, and before it arrived.
  while (!permits_.empty() && permits_.front().total <= number) permits_.pop_front();
  if (shares_clock || id > kMostClocks) return;
  if (!permits_.empty()) clock_.after(header.sent_ns, permits_.front().sent_ns);
  clock_.before(header.sent_ns, arrival_ns);
  const std::optional<ClockBounds::Estimate> estimate = clock_.estimate();
  // Each fact takes a lock, so small improvements are not reported.
  const bool better =
      estimate && (reported_bound_ns_ == 0 || estimate->bound_ns < 0.8 * reported_bound_ns_);
  if (!better) return;
  reported_bound_ns_ = estimate->bound_ns;
  report_clock(*estimate, probe);
}

void CreditPeer::note_credit(std::uint64_t total, std::int64_t sent_ns) {
  if (permits_.empty() || permits_.back().total < total) permits_.push_back({total, sent_ns});
}

std::optional<ClockBounds::Estimate> CreditPeer::clock() const noexcept {
  return shares_clock ? ClockBounds::Estimate{} : clock_.estimate();
}

void CreditPeer::report_clock(const ClockBounds::Estimate& estimate, Probe& probe) const {
  if (id > kMostClocks) return;
  const std::string fact = "producer_" + std::to_string(id - 1) + "_clock_";
  probe.fact(fact + "offset_us", 1e-3 * estimate.offset_ns);
  probe.fact(fact + "bound_us", 1e-3 * estimate.bound_ns);
}

}  // namespace penstock::remote
