// SPDX-License-Identifier: Apache-2.0
// What a consumer knows of one of its producers that may send by credit.
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
#include "dataflow/wire/framed_header.h"
#include "feeders/clock_bounds.h"
#include "feeders/credit_book.h"
#include "feeders/producer_pool.h"

namespace penstock {

struct CreditPeer {
  CreditBook::Producer id = 0;  ///< 1, 2, ... in the order in which they were welcomed
  std::string routing_id, name;
  std::uint64_t producer = 0;
  std::shared_ptr<const ProducerPool> pool;
  bool ended = false;          ///< it will send no more
  bool gone = false;           ///< nothing reaches it; what it sent before may still be here
  std::uint64_t received = 0;  ///< batches
  std::int64_t lent = 0;       ///< leases whose bytes are read where they lie
  std::vector<std::uint64_t> returns;  ///< leases that it has not been told of
  bool owes_credit = false;            ///< we owe it one, to be sent at once
  bool has_more_credit = false;        ///< than it was told
  std::uint64_t told_credit = 0;       ///< all that it was told of
  std::int64_t last_sent_ns = 0, last_arrival_ns = 0;
  bool shares_clock = false;
  std::chrono::steady_clock::time_point quiet_since{};  ///< when it last sent, or got a credit
  bool is_known_as_lost = false;                        ///< and was noted for it
  bool is_known_as_silent = false;                      ///< and was noted for it

  /// A batch came, and a credit went: what their times say of the producer's clock goes into the
  /// facts of the run, for the first eight producers.
  void note_batch(const FramedHeader& header, std::int64_t arrival_ns, Probe& probe);
  void note_credit(std::uint64_t total, std::int64_t sent_ns);
  /// Of its clock; empty: not known.
  std::optional<ClockBounds::Estimate> clock() const noexcept;
  void report_clock(const ClockBounds::Estimate& estimate, Probe& probe) const;

 private:
  struct Permit {
    std::uint64_t total = 0;
    std::int64_t sent_ns = 0;
  };
  std::deque<Permit> permits_;  // credits that no batch has come by yet
  ClockBounds clock_;
  double reported_bound_ns_ = 0;  // 0: none yet
};

}  // namespace penstock
