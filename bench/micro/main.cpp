// SPDX-License-Identifier: Apache-2.0
// Runs the micro-benchmarks. Takes Google Benchmark's flags and two more: --data-dir DIRECTORY for
// real files, and --feeder SPEC to measure one feeder (as --fake-location takes it) instead of
// every feeder of the table.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/micro/micro_data.h"
#include "bench/record/machine.h"
#include "dataflow/batch_ring.h"
#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/probe.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"

namespace penstock {

std::string& micro_data_directory() {
  static std::string directory = "data/train";
  return directory;
}

namespace {

struct Loaded {
  std::vector<Sample> samples;
  std::string problem;
};

Loaded load() {
  constexpr std::size_t kMaxSamples = 400;
  Loaded loaded;
  try {
    const SourceEntry& entry = find_entry(source_table(), "image-folder");
    const DataPlan plan{.directory = micro_data_directory(), .epochs = 1};
    const std::unique_ptr<Source> source =
        entry.make(plan, Options(entry.name, entry.options, ComponentText{}));
    for (Sample sample; loaded.samples.size() < kMaxSamples && source->next(sample);) {
      source->load(sample);
      loaded.samples.push_back(sample);
    }
  } catch (const Error& error) {
    loaded.problem = error.what();
  }
  return loaded;
}

/// Removes `--name value` and `--name=value` from the arguments, because Google Benchmark would
/// refuse them. Returns the last value, or `fallback`.
std::string take_flag(std::string_view name, std::string fallback, int& count, char** arguments) {
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == name && i + 1 < count) {
      fallback = arguments[++i];
    } else if (argument.starts_with(name) && argument.substr(name.size()).starts_with('=')) {
      fallback = argument.substr(name.size() + 1);
    } else {
      arguments[kept++] = arguments[i];
    }
  }
  count = kept;
  return fallback;
}

/// Names the penstock program beside this one as the producer for a feeder that waits for one.
std::string with_producer(const FeederEntry& entry, const std::filesystem::path& here) {
  std::string text(entry.name);
  if (!entry.needs_producer) return text;
  const std::string endpoint = "ipc://@penstock_micro_" + std::to_string(getpid());
  return text + ":endpoint=" + endpoint + ",hwm=2,producer='" +
         (here.parent_path() / "penstock").string() +
         " serve --fake-location host --model null --hwm 2 --endpoint " + endpoint + "'";
}

/// Measures how fast a feeder, as --fake-location takes it, fills batches when no training consumes
/// them.
void fill_batches(benchmark::State& state, const std::string& text, const std::string& data_dir) {
  SteadyClock clock;
  HostDevice device(clock);
  Device* const reader = &device;
  constexpr std::size_t kSlots = 3;
  const BatchSpec spec{.images = 64, .image = {224, 224, 3}};
  BatchRing ring(spec, kSlots, device, MemoryKind::pinned, std::span(&reader, 1), Order::relaxed,
                 clock);
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
                                 .slots = kSlots});
    std::jthread thread([&](std::stop_token stop) { run_to_end(*feeder, ring, std::move(stop)); });
    const auto take = [&] {
      if (!ring.next(0, {})) throw DataError("the feeder's data ended");
    };
    // Starting the feeder and filling the slots for the first time are not measured.
    for (std::size_t i = 0; i <= kSlots; ++i) take();
    for (auto _ : state) take();
    state.SetLabel(std::string(entry.summary));
    state.SetItemsProcessed(state.iterations() * spec.images);
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(spec.bytes()));
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

/// Adds the benchmark "feeder/NAME". If the feeder reads files, it reads them from `data_dir`.
void register_feeder_benchmark(const std::string& feeder, const std::string& data_dir) {
  const std::string name = "feeder/" + parse_component(feeder).name;
  benchmark::RegisterBenchmark(
      name.c_str(),
      [feeder, data_dir](benchmark::State& state) { fill_batches(state, feeder, data_dir); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

const std::vector<Sample>& micro_samples(std::string& problem) {
  static const Loaded loaded = load();
  problem = loaded.problem;
  return loaded.samples;
}

}  // namespace penstock

int main(int count, char** arguments) {
  using namespace penstock;
  micro_data_directory() = take_flag("--data-dir", micro_data_directory(), count, arguments);
  const std::string feeder = take_flag("--feeder", "", count, arguments);
  if (!feeder.empty()) {
    register_feeder_benchmark(feeder, micro_data_directory());
  } else {
    for (const FeederEntry* entry : feeder_table().entries) {
      register_feeder_benchmark(
          with_producer(*entry, std::filesystem::read_symlink("/proc/self/exe")),
          micro_data_directory());
    }
  }
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  const std::size_t matched = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (matched > 0) return 0;
  std::cerr << "penstock_micro: no benchmark matches --benchmark_filter; "
               "--benchmark_list_tests lists all\n";
  return 2;
}
