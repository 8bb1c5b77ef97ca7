// SPDX-License-Identifier: Apache-2.0
// Measures how fast each feeder of the table fills batches when no training consumes them.
// `--feeder SPEC` measures one feeder instead of all, as in `penstock_micro --feeder
// queue:crop=center --benchmark_filter=feeder`.
#include "bench/micro/feeder_bench.h"

#include <benchmark/benchmark.h>

#include <memory>
#include <thread>

#include "bench/record/machine.h"
#include "dataflow/batch_ring.h"
#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/probe.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

void fill_batches(benchmark::State& state, const std::string& text, const std::string& data_dir) {
  SteadyClock clock;
  HostDevice device(clock);
  Device* const reader = &device;
  const BatchSpec spec{.images = 64, .image = {224, 224, 3}};
  BatchRing ring(spec, 3, device, MemoryKind::pinned, std::span(&reader, 1), Order::relaxed, clock);
  Probe probe;
  try {
    const ComponentText parts = parse_component(text);
    const FeederEntry& entry = find_entry(feeder_table(), parts.name);
    const Options options(parts.name, entry.options, parts);
    DataPlan data;
    data.directory = data_dir;
    const std::unique_ptr<Feeder> feeder =
        entry.make(FeederContext{.spec = spec,
                                 .device = device,
                                 .clock = clock,
                                 .options = options,
                                 .data = data,
                                 .probe = probe,
                                 .timeout = std::chrono::seconds(10),
                                 .threads = usable_cores(),
                                 .slots = 3});
    std::jthread thread([&](std::stop_token stop) { run_to_end(*feeder, ring, std::move(stop)); });
    for (auto _ : state) {
      const ReadLease lease = ring.next(0, {});
      if (!lease) throw DataError("the feeder's data ended");
    }
    state.SetItemsProcessed(state.iterations() * spec.images);
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(spec.bytes()));
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

}  // namespace

void register_feeder_benchmark(const std::string& feeder, const std::string& data_dir) {
  const std::string name = "feeder/" + parse_component(feeder).name;
  benchmark::RegisterBenchmark(
      name.c_str(),
      [feeder, data_dir](benchmark::State& state) { fill_batches(state, feeder, data_dir); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace penstock
