// SPDX-License-Identifier: Apache-2.0
// What a consumer knows about one of its producers with credit.
//
// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataflow/probe.h"
#include "feeders/remote/credit/credit_scheduler.h"
#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/send/producer_pool.h"
#include "feeders/remote/wire/framed_header.h"

namespace penstock::remote {

struct CreditPeer {
  CreditScheduler::Producer id = 0;  ///< 1, 2, ... in the order in which producers were welcomed
  std::string routing_id, name;
  std::uint64_t producer = 0;
  std::shared_ptr<const ProducerPool> pool;
  bool ended = false;          ///< it sends no more batches
  bool gone = false;           ///< unreachable; batches that it sent before may still be here
  std::uint64_t received = 0;  ///< batches
  std::int64_t lent = 0;       ///< leases whose bytes are in use without a copy
  std::vector<std::uint64_t> returns;  ///< leases to return with the next credit message
  bool owes_credit = false;            ///< we owe it a credit message, to send at once
  bool has_more_credit = false;        ///< its credit has grown since the last credit message
  std::uint64_t told_credit = 0;       ///< credit in the last credit message
  std::int64_t last_sent_ns = 0, last_arrival_ns = 0;
  bool shares_clock = false;
  std::chrono::steady_clock::time_point quiet_since{};  ///< when it last sent, or got a credit
  bool is_known_as_lost = false;                        ///< and the loss was noted
  bool is_known_as_silent = false;                      ///< and the silence was noted

  /// Record a batch that arrived, and a credit that was sent. Their times bound the producer's
  /// clock. The bounds go into the facts of the run, for the first eight producers.
  void note_batch(const FramedHeader& header, std::int64_t arrival_ns, Probe& probe);
  void note_credit(std::uint64_t total, std::int64_t sent_ns);
  /// Estimate of its clock; empty: not known.
  std::optional<ClockBounds::Estimate> clock() const noexcept;
  void report_clock(const ClockBounds::Estimate& estimate, Probe& probe) const;

 private:
  struct Permit {
    std::uint64_t total = 0;
    std::int64_t sent_ns = 0;
  };
  std::deque<Permit> permits_;  // credits that were not used by a batch yet
  ClockBounds clock_;
  double reported_bound_ns_ = 0;  // 0: not reported yet
};

}  // namespace penstock::remote
