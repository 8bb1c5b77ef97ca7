// SPDX-License-Identifier: Apache-2.0
// Handles messages of Penstock's own format for zmq-consume. Hellos, ends and batches go through
// the accounts of producers. The times that batches carry are kept for the result.
//
// Counters, from the first such message on: producers_seen, producers_ended, images_sent,
// images_missing, images_rejected (the rest of images_sent is received), batches_missing and
// batches_duplicate. images_missing and batches_missing fall again when late batches arrive.
//
// Thread-safety: any thread. No lock is held while frames are read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "dataflow/batch.h"
#include "dataflow/probe.h"
#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/receive/delivery_times.h"
#include "feeders/remote/receive/producer_accounts.h"
#include "feeders/remote/wire/framed.h"
#include "feeders/remote/wire/framed_header.h"

namespace penstock::remote {

class FramedIntake {
 public:
  struct Setup {
    std::int64_t producers = 0;  ///< the data end after this many producers have ended; 0: never
    /// Only this machine's processes can reach the sockets, so a producer without a hello also runs
    /// here. A producer that outlives its consumers sends a hello only to the first of them.
    bool one_machine = false;
    ProducerAccounts::Limits limits{};
  };
  /// The probe outlives this object.
  FramedIntake(const BatchSpec& spec, Probe& probe, const Setup& setup);

  /// Parses a message. Returns a batch; empty: it was a hello or an end, which is in the accounts
  /// now. Throws DataError if the message cannot be used.
  std::optional<FramedMessage> open(MessageFrames frames);
  /// Records a good batch that arrived at `received_ns` (CLOCK_REALTIME, in ns). `ahead`: how far
  /// its producer's clock is ahead, if known. Throws DataError if its number or shape is wrong.
  void accept(const FramedHeader& header, std::int64_t received_ns,
              const std::optional<ClockBounds::Estimate>& ahead);
  /// Records a bad batch. Returns the reason with the name of its producer, if it said one.
  std::string reject(const FramedHeader& header, const std::string& why);
  /// Zero if the producer has this machine's clock; empty: not known.
  std::optional<ClockBounds::Estimate> clock_of(std::uint64_t producer) const;

  // For callers that handle hellos and ends themselves. Throw DataError if a message contradicts
  // the accounts, or if a hello announces batches that the run does not want.
  void hello(const FramedMessage& hello);
  void end(const FramedHeader& header);
  /// Call when this producer can no longer be reached.
  void left(std::uint64_t producer) { accounts_.left(producer); }

  /// State of the expected producers; always `coming` if the run expects none.
  ProducerAccounts::Flow flow() const;
  /// Text for a timeout, such as "; 2 producers were seen, and all of them have sent their end".
  /// Empty: no such message arrived.
  std::string silence() const;
  /// Call when the window begins. From now on, batches of a single producer on this machine are
  /// counted by the times that they carry, so that batches waiting in sockets are known. Facts:
  /// producer_window_batches, and producer_window_s from now to the last of them.
  void window_begins() noexcept;
  /// Puts times and shares into the result. `copy_s`: average time to take a batch out of its
  /// message, in seconds; 0: not timed. Call once, at the end.
  void summarise(double copy_s);

  std::string name_of(std::uint64_t producer) const { return accounts_.name_of(producer); }

 private:
  void count();

  const BatchSpec spec_;
  Probe& probe_;
  const std::uint64_t producers_;
  const std::string boot_;
  const bool one_machine_;
  ProducerAccounts accounts_;
  HandOffTimes times_;
  std::atomic<std::int64_t> window_begin_ns_{INT64_MAX}, window_batches_{0}, window_last_ns_{0};
  DeliveryTimes delivery_;
  std::mutex mutex_;
  // All below under mutex_.
  std::array<Counter*, 7> counters_{};  // null until the first message
  AccountTotals counted_;               // values that the counters have now
};

}  // namespace penstock::remote
