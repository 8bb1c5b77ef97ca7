// SPDX-License-Identifier: Apache-2.0
// Decides who holds up a feeder that receives from other processes: producer, network or consumer.
// It uses the timestamps in batches, the utilisation of receivers, and the ladder's rungs, by the
// laws and rules in README.md. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/diagnosis.h"
#include "bench/isolate/ladder.h"
#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"

namespace penstock::isolate {

/// What one side adds to the time from the start of work on a batch until a device takes it.
struct DeliveryPart {
  std::string name;  ///< "made"
  Side side = Side::none;
  statistics::Estimate ms;  ///< per batch, mean over the window
  double percent = 0;       ///< share of all parts
};

struct DeliveryFinding {
  Side blame = Side::none;  ///< the side that holds batches up
  bool timed = false;       ///< batches carried the times when they were begun, ready and sent
  std::string clocks;  ///< how both ends' clocks compare: "one clock", "within 35 us of each other"
  std::string not_known;  ///< what the data cannot tell apart, and how to find out; empty: nothing
  std::vector<DeliveryPart> parts;  ///< upstream first; without timestamps, the consumer's parts
                                    ///< only

  double producers = 0;  ///< number of producers that were feeding; 0: not known
  double came_img_per_s = 0;
  std::optional<double> making_percent;  ///< share of producers' time in which they made batches
  std::optional<double> held_percent;    ///< share of time in which a producer had an unsent batch
                                         ///< ready
  double receiving_percent = 0;          ///< share of receivers' time in which they worked
  double waits_in_percent = 0, waits_out_percent = 0;  ///< waiting for messages; for room

  // Mean number of batches in the window.
  std::optional<double> ready;      ///< at the producers, not sent yet
  std::optional<double> under_way;  ///< sent but not received: on the network and in both sockets
  double in_ring = 0, ring_slots = 0;

  // The rate that each side could reach alone, in images per second.
  std::optional<double>
      producers_img_per_s;  ///< if nothing ever held producers back, by their own times
  std::optional<double> transport_img_per_s;  ///< of constant batches, by the ladder
  std::optional<double> consumer_img_per_s;   ///< from memory, by the ladder
};

/// Analyses a feeder whose batches come from other processes, by its coupled runs and by the
/// ladder's rungs, if there are any. Returns none if no run was usable. If the network is to blame,
/// the stage that `diagnosis` calls the producer is renamed to the network.
std::optional<DeliveryFinding> find_delivery(const Row& coupled,
                                             const std::vector<RungFinding>& ladder,
                                             analysis::Diagnosis& diagnosis);

/// Says in sentences who is to blame and why, what each side could do, and what is not known.
std::vector<std::string> delivery_sentences(const DeliveryFinding& found);

}  // namespace penstock::isolate
