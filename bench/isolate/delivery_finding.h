// SPDX-License-Identifier: Apache-2.0
// Where the time of batches goes that come from other processes: their producers', the network's
// and the consumer's share. Plain data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/statistics/estimate.h"

namespace penstock {

/// Who holds batches up; producer_or_network where they carry no times that would tell.
enum class Blame : unsigned char { nobody, producer, network, consumer, producer_or_network };
constexpr std::string_view to_string(Blame blame) noexcept {
  switch (blame) {
    case Blame::nobody:
      return "nobody";
    case Blame::producer:
      return "producer";
    case Blame::network:
      return "network";
    case Blame::consumer:
      return "consumer";
    case Blame::producer_or_network:
      return "producer or network";
  }
  return "";
}

/// What one side adds to the time from where work on a batch begins to where it is taken.
struct DeliveryPart {
  std::string name;    ///< "made"
  std::string side;    ///< "producer", "network", "consumer"
  Estimate ms;         ///< a batch, mean over the window
  double percent = 0;  ///< of all parts
};

struct DeliveryFinding {
  Blame blame = Blame::nobody;
  bool timed = false;  ///< batches said when they were begun, ready and sent
  std::string clocks;  ///< how both ends' clocks compare: "one clock", "within 35 us of each other"
  std::string not_known;  ///< what cannot be told apart, and how to get it; empty: nothing
  std::vector<DeliveryPart> parts;  ///< upstream first; without times, the consumer's alone

  double producers = 0;  ///< that were feeding; 0: not known
  double came_img_per_s = 0;
  std::optional<double> making_percent;  ///< of producers' time: they made batches
  std::optional<double> held_percent;    ///< a producer had a batch ready that was not sent yet
  double receiving_percent = 0;          ///< of receivers' time: working
  double waits_in_percent = 0, waits_out_percent = 0;  ///< for messages; for room

  // Batches on average in the window.
  std::optional<double> ready;      ///< at the producers, not sent yet
  std::optional<double> under_way;  ///< sent and not received: the network's, and in both sockets
  double in_ring = 0, ring_slots = 0;

  // What each could do alone, in images a second.
  std::optional<double>
      producers_img_per_s;  ///< if nothing ever held them back, by their own times
  std::optional<double> transport_img_per_s;  ///< constant batches, by the ladder
  std::optional<double> consumer_img_per_s;   ///< out of memory, by the ladder
};

}  // namespace penstock
