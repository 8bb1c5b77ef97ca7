// SPDX-License-Identifier: Apache-2.0
// Google Benchmark's own flags, and --data-dir.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "bench/micro/micro_data.h"
#include "dataflow/error.h"
#include "dataflow/source.h"

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
      loaded.samples.push_back(sample);
      loaded.samples.back().file = "a file of the data directory";  // the source's memory ends here
    }
  } catch (const Error& error) {
    loaded.problem = error.what();
  }
  return loaded;
}

/// Takes --data-dir out of the arguments, which Google Benchmark would refuse.
void take_data_directory(int& count, char** arguments) {
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    constexpr std::string_view kFlag = "--data-dir";
    if (argument == kFlag && i + 1 < count) {
      micro_data_directory() = arguments[++i];
    } else if (argument.starts_with("--data-dir=")) {
      micro_data_directory() = argument.substr(kFlag.size() + 1);
    } else {
      arguments[kept++] = arguments[i];
    }
  }
  count = kept;
}

}  // namespace

const std::vector<Sample>& micro_samples(std::string& problem) {
  static const Loaded loaded = load();
  problem = loaded.problem;
  return loaded.samples;
}

}  // namespace penstock

int main(int count, char** arguments) {
  penstock::take_data_directory(count, arguments);
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
