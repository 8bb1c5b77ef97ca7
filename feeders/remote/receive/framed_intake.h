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

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "dataflow/batch.h"
#include "dataflow/probe.h"
#include "feeders/remote/receive/delivery_times.h"
#include "feeders/remote/receive/hand_off_times.h"
#include "feeders/remote/receive/producer_accounts.h"
#include "feeders/remote/wire/framed.h"
#include "feeders/remote/wire/wire_batch.h"

namespace penstock::remote {

class FramedIntake {
 public:
  /// `producers`: the data end after this many producers have ended; 0: never. The probe outlives
  /// this object. `one_machine`: only this machine's processes can reach the sockets, so a producer
  /// without a hello also runs here. A producer that outlives its consumers sends a hello only to
  /// the first of them.
  FramedIntake(const BatchSpec& spec, Probe& probe, std::int64_t producers,
               bool one_machine = false, ProducerAccounts::Limits limits = {});

  /// Returns the batch of pixels in a message that arrived at `received_ns` (CLOCK_REALTIME, in
  /// ns). Empty: the message was a hello or an end. Throws DataError if the message cannot be used;
  /// the text names the producer if it is known.
  std::optional<WireBatch> take(MessageFrames frames, std::int64_t received_ns);

  // The same in steps, for batches of other kinds:
  /// Returns the batch message; empty: it was a hello or an end.
  std::optional<FramedMessage> open(MessageFrames frames);
  /// Records a good batch. Throws DataError if its number or shape is wrong.
  void accept(const FramedHeader& header, std::int64_t received_ns);
  /// The same, with the offset of the producer's clock, if known.
  void accept(const FramedHeader& header, std::int64_t received_ns,
              const std::optional<ClockBounds::Estimate>& ahead);
  /// Records a bad batch. Returns the reason with the name of its producer.
  std::string reject(const FramedHeader& header, const std::string& why);

  // For callers that handle hellos and ends themselves. Throw DataError if a message contradicts
  // the accounts, or if a hello announces batches that the run does not want.
  void greet(const FramedMessage& hello);
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

  const ProducerAccounts& accounts() const noexcept { return accounts_; }

 private:
  struct Counters {
    Counter &seen, &ended, &sent, &missing, &rejected, &batches_missing, &duplicate;
  };
  void count();
  bool has_our_clock(std::uint64_t producer) const;

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
  std::optional<Counters> counters_;
  AccountTotals counted_;  // values that the counters have now
};

}  // namespace penstock::remote
