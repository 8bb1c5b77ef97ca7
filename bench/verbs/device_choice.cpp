// SPDX-License-Identifier: Apache-2.0
#include "bench/verbs/device_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/config/flags.h"
#include "bench/run/runner.h"
#include "dataflow/clock.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "trainer/backend.h"

namespace penstock {
namespace {

/// The number of devices of the backend on this machine; 0, with the reason, if none is usable.
std::int32_t count_devices(const BackendEntry& entry, std::string& reason) {
  try {
    SteadyClock clock;
    const Options options = options_of(entry.name, entry.options);
    return entry.make(options, clock)->device_count();
  } catch (const Error& error) {  // the driver or a library is missing, too old or broken
    reason = error.what();
    return 0;
  }
}

}  // namespace

std::string choose_devices(std::span<RunConfig> runs, std::span<const std::string> arguments) {
  const auto asks = [](const RunConfig& run) { return run.device == kAutoDevice; };
  if (std::ranges::none_of(runs, asks)) return {};
  std::string chosen = RunConfig().device, reason = "no other device is known";
  std::int32_t devices = 0;
  for (const BackendEntry* entry : backend_table().entries) {
    if (!entry->preferred || (devices = count_devices(*entry, reason)) == 0) continue;
    chosen = entry->name;
    reason = fmt::format("this machine has {}", devices);
    break;
  }
  const bool counted = is_typed("num_gpus", arguments);
  for (RunConfig& run : runs) {
    if (!asks(run)) continue;
    run.device = chosen;
    if (devices > 0 && !counted) run.num_gpus = std::min(run.num_gpus, devices);
  }
  return fmt::format("--device auto is {}: {}", chosen, reason);
}

}  // namespace penstock
