// SPDX-License-Identifier: Apache-2.0
// The feeding half of a run's parts: feeders, rings and stagers, and which data they see.
#include <utility>

#include "bench/run_parts.h"
#include "bench/slot_memory.h"
#include "bench/trace.h"
#include "bench/training_rules.h"

namespace penstock {
namespace {

Order order_of(const RunConfig& config) {
  return config.order == "strict" ? Order::strict : Order::relaxed;
}

}  // namespace

void RunParts::make_feeders() {
  const bool on_devices = components.feeder->slots == MemoryKind::device;
  if (!on_devices) {
    Device& first = *ranks.front().device;
    slot_memory = std::make_unique<SlotMemory>(first, config.huge_pages, probe);
    host_ring =
        std::make_unique<BatchRing>(spec, static_cast<std::size_t>(config.prefetch), *slot_memory,
                                    MemoryKind::pinned, devices(), order_of(config), clock);
    host_ring->take_loans();  // stagers alone read it
    host_feeder = make_feeder(spec, data_plan(0), first, config.prefetch, probe);
    extent = host_feeder->extent();
  }
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    Rank& rank = ranks[index];
    Device* const device = rank.device.get();
    rank.ring = std::make_unique<BatchRing>(spec, static_cast<std::size_t>(config.device_slots),
                                            *device, MemoryKind::device, std::span(&device, 1),
                                            Order::relaxed, clock);
    if (on_devices) {
      rank.feeder = make_feeder(spec, data_plan(static_cast<std::int32_t>(index)), *device,
                                config.device_slots, probe);
    } else {
      rank.stager =
          std::make_unique<Stager>(*host_ring, index, *rank.ring, *device,
                                   marks(Work::staging, static_cast<std::int32_t>(index)));
      rank.stager->count(probe.stage({"copy", "stager"}), clock);
    }
  }
  if (trace != nullptr) watch_rings();
}

void RunParts::watch_rings() {
  if (host_ring) trace->watch(*host_ring, "host ring", -1);
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    trace->watch(*ranks[index].ring, "device ring", static_cast<std::int32_t>(index));
  }
}

DataPlan RunParts::data_plan(std::int32_t rank) const {
  DataPlan data{.directory = config.data_dir,
                .order = order_of(config),
                .seed = config.seed,
                .first_sample = 0,
                .classes = spec.classes};
  if (components.feeder->slots == MemoryKind::device) {
    data.rank = global_rank(rank);
    data.ranks = static_cast<std::int32_t>(all_devices(config));
  } else if (processes() != nullptr) {  // a feeder of the host's serves all ranks of its process
    data.rank = processes()->launch().rank;
    data.ranks = processes()->launch().size;
  }
  const std::int64_t taken_a_step = spec.images * (all_devices(config) / data.ranks);
  data.first_sample = static_cast<std::uint64_t>(first_step * taken_a_step);
  return data;
}

std::unique_ptr<Feeder> RunParts::make_feeder(const BatchSpec& batches, DataPlan data,
                                              Device& device, std::int32_t slots, Probe& counters) {
  data.stop = stop_;
  return components.feeder->make(FeederContext{
      .spec = batches,
      .device = device,
      .clock = clock,
      .options = feeder_options_,
      .data = std::move(data),
      .probe = counters,
      .marks = marks(Work::feeding),
      .on_bad_sample = parse_bad_sample_policy(config.on_bad_sample),
      .timeout = patience_of(config),
      .threads = config.feeder_threads,
      .slots = slots,
      .seed = config.seed,
  });
}

std::uint64_t RunParts::published() const {
  if (host_ring) return host_ring->stats().published;
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks) sum += rank.ring->stats().published;
  return sum;
}

std::uint64_t RunParts::taken() const {
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks) {
    const RingStats ring = rank.ring->stats();
    sum += ring.published - ring.filled_slots;
  }
  return sum;
}

}  // namespace penstock
