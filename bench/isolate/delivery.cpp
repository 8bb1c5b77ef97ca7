// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/delivery.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/analysis/cost.h"
#include "bench/record/report_text.h"
#include "bench/statistics/input_cost.h"

namespace penstock::isolate {
namespace {

/// A side that is busy for a smaller share of time does not hold others up.
constexpr double kMostly = 0.5;
/// A transport that alone carries this multiple of the received rate is no bottleneck.
constexpr double kAmple = 2;
constexpr std::string_view kTcp = "tcp://";

double fact(const RunResult& result, const char* name) { return fact_of(result, name).value_or(0); }

double counter(const RunResult& result, const char* name) {
  const auto found = result.counters.find(name);
  return found == result.counters.end() ? 0 : static_cast<double>(found->second);
}

/// The number of producers that were feeding at the end: by credit if it is known which producers
/// ended, otherwise by their numbers.
double producers_of(const RunResult& result) {
  const double ended = counter(result, "producers_ended");
  const double welcomed = counter(result, "producers_welcomed");
  const double gone = ended + counter(result, "producers_lost");
  if (welcomed > 0) return welcomed > gone ? welcomed - gone : welcomed;
  const double seen = counter(result, "producers_seen");
  return seen > ended ? seen - ended : seen;
}

/// The most upstream workers.
const std::string& receiver_of(const RunResult& result) { return result.stages.front().workers; }

/// One run. Times are in seconds per message.
struct RunDelivery {
  double messages_per_s = 0, producers = 0;
  double making = 0, holding = 0, way = 0, taking = 0, in_ring = 0;
  bool timed = false, begun = false;
  double ring = 0, slots = 0;
  double images = 0;  // of a message
};

RunDelivery delivery_of(const RunResult& result) {
  RunDelivery run;
  run.producers = producers_of(result);
  const double timed = fact(result, "batches_timed_in_window");
  run.timed = timed > 0;
  run.begun = result.facts.contains("producing_window_mean_s");
  const auto messages = static_cast<double>(result.stages.front().items);
  run.messages_per_s = messages / result.window_s;
  run.images = messages > 0 ? static_cast<double>(result.stages.front().images) / messages : 0;
  run.making = fact(result, "producing_window_mean_s");
  run.holding = fact(result, "socket_wait_window_mean_s");
  run.way = fact(result, "hand_off_window_mean_s");
  for (const StageUse& stage : result.stages) {
    if (stage.role == StageRole::copies || !(messages > 0)) continue;
    // A receiver processes a message alone; decode threads share its images.
    const bool shares = stage.workers != receiver_of(result);
    const std::int32_t threads = shares ? analysis::threads_of(result.stages, stage.workers) : 1;
    run.taking += stage.wall_s / std::max(1, threads) / messages;
  }
  if (!result.queues.empty()) {
    run.ring = result.queues.front().mean_filled;
    run.slots = result.queues.front().slots;
  }
  // The ring holds batches of the run, whatever the size of a message.
  const double img_per_s = run.messages_per_s * run.images;
  if (img_per_s > 0) run.in_ring = run.ring * result.config.batch_size / img_per_s;
  return run;
}

template <typename Value>
double mean_over(const std::vector<RunDelivery>& runs, const Value& value) {
  double sum = 0;
  for (const RunDelivery& run : runs) sum += value(run);
  return sum / static_cast<double>(runs.size());
}

void add_part(DeliveryFinding& found, std::string name, Side side,
              const std::vector<RunDelivery>& runs, double RunDelivery::*seconds) {
  std::vector<double> ms;
  for (const RunDelivery& run : runs) ms.push_back(1e3 * run.*seconds);
  found.parts.push_back({std::move(name), side, statistics::summarise_rounds(ms), 0});
}

void add_parts(DeliveryFinding& found, const std::vector<RunDelivery>& runs, bool begun) {
  if (found.timed) {
    if (begun) add_part(found, "made", Side::producer, runs, &RunDelivery::making);
    add_part(found, "ready, not sent", Side::producer, runs, &RunDelivery::holding);
    add_part(found, "on its way", Side::network, runs, &RunDelivery::way);
  }
  add_part(found, "checked and copied", Side::consumer, runs, &RunDelivery::taking);
  add_part(found, "in the ring", Side::consumer, runs, &RunDelivery::in_ring);
  double whole = 0;
  for (const DeliveryPart& part : found.parts) whole += part.ms.value;
  for (DeliveryPart& part : found.parts) {
    part.percent = whole > 0 ? 100 * part.ms.value / whole : 0;
  }
}

/// Says how the clocks of both ends compare, by the last run with timestamps.
void add_clocks(DeliveryFinding& found, const RunResult& last) {
  if (fact(last, "hand_off_clocks_unknown") > 0) {
    found.clocks =
        "clocks that differ by an unknown amount: transit times are measured from the fastest one";
    found.not_known =
        "the shortest transit time of batches: with push, the difference between the clocks of two "
        "machines is unbounded; zmq-consume:credit=N with penstock serve --credit bounds it";
    return;
  }
  const double bound_us = fact(last, "hand_off_clock_bound_us");
  found.clocks = bound_us > 0
                     ? fmt::format("clocks that differ, corrected to within {:.3g} us", bound_us)
                     : "one clock";
}

/// Decides between producer and network when receivers wait for messages.
Side outside_blame(const DeliveryFinding& found) {
  if (found.timed) {
    const bool held = found.held_percent.value_or(0) >= 100 * kMostly;
    const bool busy = found.making_percent.value_or(100) >= 100 * kMostly;
    return busy && !held ? Side::producer : Side::network;
  }
  if (!found.transport_img_per_s) return Side::producer_or_network;
  const double times = *found.transport_img_per_s / std::max(1e-9, found.came_img_per_s);
  return times >= kAmple ? Side::producer : Side::producer_or_network;
}

/// Do the endpoints say that batches come over TCP from other machines?
bool has_wire(const std::string& feeder) {
  for (std::size_t at = 0; (at = feeder.find(kTcp, at)) != std::string::npos;) {
    const std::string_view host = std::string_view(feeder).substr(at += kTcp.size());
    const bool here =
        host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]");
    if (!here) return true;
  }
  return false;
}

/// A producer that the ladder starts is on this machine, so its rate says nothing about a network.
void add_rungs(DeliveryFinding& found, const std::vector<RungFinding>& ladder, bool has_wire) {
  for (const RungFinding& rung : ladder) {
    if (!rung.unavailable.empty() || !rung.supply_img_per_s) continue;
    const bool is_theirs = !has_wire || !rung.own_producer;
    if (rung.part == Side::network && is_theirs)
      found.transport_img_per_s = rung.supply_img_per_s->value;
    if (rung.part == Side::consumer) found.consumer_img_per_s = rung.supply_img_per_s->value;
  }
}

void rename_outside(const DeliveryFinding& found, analysis::StageFinding& stage) {
  if (found.blame == Side::network) {
    stage.name = "carry";
    stage.role = StageRole::carries;
    stage.workers = "network";
    stage.capacity_img_per_s = found.came_img_per_s;
  } else if (found.blame == Side::producer_or_network) {
    stage.name = "send";
    stage.role = StageRole::sends;
  } else if (found.making_percent) {
    stage.utilisation_percent = stage.busy_percent = *found.making_percent;
  }
}

std::string count_of(double producers) {
  if (!(producers > 0)) return "the producers";
  return producers == 1 ? "its one producer" : fmt::format("its {:.0f} producers", producers);
}

std::string depths_sentence(const DeliveryFinding& found) {
  std::string text = "On average ";
  if (found.ready) {
    text +=
        fmt::format("{} batches were ready at the producers, {} were in transit or in sockets, ",
                    format_fixed(*found.ready, 1), format_fixed(*found.under_way, 1));
  }
  return text + fmt::format("{} of {:.0f} slots of the ring were filled.",
                            format_fixed(found.in_ring, 1), found.ring_slots);
}

std::string blame_sentence(const DeliveryFinding& found) {
  const std::string who = count_of(found.producers);
  switch (found.blame) {
    case Side::producer:
      if (!found.timed) {
        return fmt::format(
            "The producer's share is too slow: {:.0f} img/s came, and the transport alone carries "
            "{:.0f} on this machine.",
            found.came_img_per_s, *found.transport_img_per_s);
      }
      return fmt::format(
          "The producer's share is too slow: {} made {:.0f} img/s{}, and had a batch ready that "
          "was not sent for {:.0f} % of the time.",
          who, found.came_img_per_s,
          found.making_percent
              ? fmt::format(", busy for {:.0f} % of the time", *found.making_percent)
              : std::string(),
          found.held_percent.value_or(0));
    case Side::network:
      return fmt::format(
          "The network's share is too slow: {}{} had a batch ready that was not sent for {:.0f} % "
          "of the time, while the receiver waited for messages for {:.0f} %.",
          who,
          found.making_percent
              ? fmt::format(" made batches for no more than {:.0f} % of the time, and",
                            *found.making_percent)
              : std::string(),
          found.held_percent.value_or(0), found.waits_in_percent);
    case Side::consumer:
      return fmt::format(
          "The consumer's share is too slow: its receivers worked for {:.0f} % of the time, and "
          "waited for messages for {:.0f} %.",
          found.receiving_percent, found.waits_in_percent);
    case Side::producer_or_network:
      return fmt::format(
          "The producer or the network is too slow: the receiver waited for messages for {:.0f} % "
          "of the time.",
          found.waits_in_percent);
    case Side::none:
      break;
  }
  return fmt::format(
      "Neither the producer, the network nor the consumer is too slow: the receiver waited for "
      "room for {:.0f} % of the time, and for messages for {:.0f} %.",
      found.waits_out_percent, found.waits_in_percent);
}

std::string alone_sentence(const DeliveryFinding& found) {
  std::string text;
  const auto add = [&](const std::optional<double>& rate, const char* what) {
    if (rate) text += fmt::format("{}{:.0f} img/s {}", text.empty() ? "" : ", ", *rate, what);
  };
  add(found.producers_img_per_s, "if nothing held the producers back");
  add(found.transport_img_per_s, "over the transport with batches that cost nothing");
  add(found.consumer_img_per_s, "for the consumer, reading messages from memory");
  return text.empty() ? text : fmt::format("Each alone: {}.", text);
}

}  // namespace

std::optional<DeliveryFinding> find_delivery(const Row& coupled,
                                             const std::vector<RungFinding>& ladder,
                                             analysis::Diagnosis& diagnosis) {
  std::vector<RunDelivery> runs;
  std::vector<const RunResult*> results = analysis::usable_runs(coupled);
  std::erase_if(results, [](const RunResult* result) {
    return result->stages.empty() || !(result->window_s > 0);
  });
  if (results.empty()) return std::nullopt;
  for (const RunResult* result : results) runs.push_back(delivery_of(*result));
  const auto mean = [&](const auto& value) { return mean_over(runs, value); };
  DeliveryFinding found;
  found.timed = std::ranges::all_of(runs, &RunDelivery::timed);
  const bool begun = std::ranges::all_of(runs, &RunDelivery::begun);
  found.producers = mean([](auto& run) { return run.producers; });
  found.came_img_per_s = mean([](auto& run) { return run.messages_per_s * run.images; });
  const analysis::WorkersUse receiver =
      analysis::use_of(diagnosis.stages, receiver_of(*results.back()));
  found.receiving_percent = receiver.works;
  found.waits_in_percent = receiver.waits_in;
  found.waits_out_percent = receiver.waits_out;
  found.in_ring = mean([](auto& run) { return run.ring; });
  found.ring_slots = mean([](auto& run) { return run.slots; });
  if (found.timed) {
    const double producers = std::max(1.0, found.producers);
    found.ready = mean([](auto& run) { return run.messages_per_s * run.holding; });
    found.under_way = mean([](auto& run) { return run.messages_per_s * run.way; });
    found.held_percent = std::min(100.0, 100 * *found.ready / producers);
    add_clocks(found, *results.back());
    if (const double making = mean([](auto& run) { return run.making; }); begun && making > 0) {
      const double busy = mean([](auto& run) { return run.messages_per_s * run.making; });
      found.making_percent = std::min(100.0, 100 * busy / producers);
      // Producers that make several batches in parallel exceed the rate of one after the other.
      const double images = mean([](auto& run) { return run.images; });
      found.producers_img_per_s = std::max(found.came_img_per_s, producers * images / making);
    }
  } else {
    found.not_known =
        "the shares of producers and network, because these messages carry no times; use the "
        "format framed (penstock serve --format framed, or the producer library)";
  }
  add_parts(found, runs, begun);
  add_rungs(found, ladder, has_wire(coupled.config.fake_location));
  if (diagnosis.bottleneck) {
    analysis::StageFinding& stage = diagnosis.stages[*diagnosis.bottleneck];
    if (is_outside(stage.role)) {
      found.blame = outside_blame(found);
      rename_outside(found, stage);
    } else if (stage.role != StageRole::copies) {
      found.blame = Side::consumer;
    }
  }
  return found;
}

std::vector<std::string> delivery_sentences(const DeliveryFinding& found) {
  std::vector<std::string> sentences{blame_sentence(found), depths_sentence(found)};
  if (std::string alone = alone_sentence(found); !alone.empty()) {
    sentences.push_back(std::move(alone));
  }
  if (found.timed) sentences.push_back(fmt::format("Times are by {}.", found.clocks));
  if (!found.not_known.empty()) {
    sentences.push_back(fmt::format("Not known: {}.", found.not_known));
  }
  return sentences;
}

}  // namespace penstock::isolate
