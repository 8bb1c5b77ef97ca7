// SPDX-License-Identifier: Apache-2.0
// The output of KungFu's system benchmark: Horovod's iterations without a total, then a
// machine-readable line. The durations of warm-up and start are not saved, so they are left out.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/report/foreign_report.h"
#include "bench/report/report.h"
#include "feeders/feeder.h"

namespace penstock::report {
namespace {

using Json = nlohmann::ordered_json;

bool reads_files(const RunConfig& config) {
  const FeederEntry* const feeder = match_entry(feeder_table(), plain_name(config.fake_location));
  return feeder != nullptr && feeder->reads_files;
}

void print(const RunResult& result, std::ostream& out) {
  const RunConfig& config = result.config;
  const std::string_view device = device_word(config);
  out << fmt::format("Model: {}\nBatch size: {}\nNumber of {}s: {}\n", config.model,
                     config.batch_size, device, all_devices(config));
  const IterationSummary summary = summarise_iterations(result);
  for (std::size_t i = 0; i < summary.rates.size(); ++i) {
    out << fmt::format("Iter #{}: {:.1f} img/sec per {}\n", i, summary.rates[i], device);
  }
  const Json attributes{{"framework", "penstock"},
                        {"np", all_devices(config)},
                        {"strategy", plain_name(config.variable_update)},
                        {"bs", config.batch_size},
                        {"model", config.model},
                        {"xla", false},
                        {"kf-opt", plain_name(config.variable_update)},
                        {"fuse", false},
                        {"nvlink", nullptr},
                        {"data", reads_files(config) ? "disk" : "memory"}};
  out << fmt::format("Img/sec per {}: {:.1f} +-{:.1f}\n", device, summary.mean, summary.reach)
      << fmt::format("RESULT: {:.6f} +-{:.6f} {}\n", summary.mean, summary.reach,
                     attributes.dump());
}

}  // namespace

extern constinit const ReportEntry kungfu_report{
    .name = "kungfu",
    .summary = "each run as KungFu's system benchmark prints it",
    .write = [](const SweepResult& sweep, const ReportStyle&,
                std::ostream& out) { print_runs(sweep, true, out, print); },
};

}  // namespace penstock::report
