// SPDX-License-Identifier: Apache-2.0
// What zmq-consume does with messages of Penstock's own format: hellos and ends go into the
// accounts of producers, batches through them, and what batches say of their times is kept for the
// result.
//
// Counters, from the first such message on: producers_seen, producers_ended, images_sent,
// images_missing, images_rejected (of images_sent the rest is received), batches_missing and
// batches_duplicate; images_missing and batches_missing fall again when what was late comes.
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
#include "dataflow/wire/framed.h"
#include "dataflow/wire/wire_batch.h"
#include "feeders/delivery_times.h"
#include "feeders/hand_off_times.h"
#include "feeders/producer_ledger.h"

namespace penstock {

class FramedIntake {
 public:
  /// `producers`: the data end once so many have sent their end; 0: they do not. The probe outlives
  /// it. `one_machine`: whoever says nothing of where it runs does so on this one, as all who reach
  /// our sockets do: a producer that outlives its consumers says hello to the first of them alone.
  FramedIntake(const BatchSpec& spec, Probe& probe, std::int64_t producers,
               bool one_machine = false, ProducerLedger::Limits limits = {});

  /// The batch of pixels in a message that came at that time of CLOCK_REALTIME, in ns; empty: it is
  /// none, but a hello or an end. Throws DataError where it must not be used, naming its producer
  /// where it said who it is.
  std::optional<WireBatch> take(MessageFrames frames, std::int64_t received_ns);

  // The same in steps, for batches of other kinds:
  /// The message, a batch's; empty: it was a hello or an end.
  std::optional<FramedMessage> open(MessageFrames frames);
  /// This batch is good. Throws DataError where its number or shape is not.
  void accept(const FramedHeader& header, std::int64_t received_ns);
  /// The same, with its producer's clock, as far as it is known.
  void accept(const FramedHeader& header, std::int64_t received_ns,
              const std::optional<ClockBounds::Estimate>& ahead);
  /// This one is not, for that reason, which comes back with its producer's name.
  std::string reject(const FramedHeader& header, const std::string& why);

  // For who looks at hellos and ends by himself. Throw DataError for what contradicts the accounts,
  // or, a hello, for batches that the run does not want.
  void greet(const FramedMessage& hello);
  void end(const FramedHeader& header);
  /// Nothing reaches this producer any more.
  void left(std::uint64_t producer) { ledger_.left(producer); }

  /// Of the producers that are waited for: `coming` for ever where there are none.
  ProducerLedger::Flow flow() const;
  /// For a time-out: "; 2 producers were seen, and all of them have sent their end"; empty: no such
  /// message came.
  std::string silence() const;
  /// From here on, what a single producer of this machine sends is counted by the times that its
  /// batches carry, so that those which wait in sockets are known: facts producer_window_batches,
  /// and producer_window_s from here to the last of them.
  void window_begins() noexcept;
  /// Puts times and shares into the result. `copy_s`: what taking a batch out of its message took
  /// on average, in seconds; 0: not timed. Once, at the end.
  void summarise(double copy_s);

  const ProducerLedger& ledger() const noexcept { return ledger_; }

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
  ProducerLedger ledger_;
  HandOffTimes times_;
  std::atomic<std::int64_t> window_begin_ns_{INT64_MAX}, window_batches_{0}, window_last_ns_{0};
  DeliveryTimes delivery_;
  std::mutex mutex_;
  // All below under mutex_.
  std::optional<Counters> counters_;
  LedgerTotals counted_;  // what the counters hold
};

}  // namespace penstock
