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

constexpr std::string_view kSought = "gpu", kElse = "emulated";

/// The number of devices of the backend on this machine; 0, with the reason, if none is usable.
std::int32_t count_devices(std::string_view name, std::string& reason) {
  try {
    SteadyClock clock;
    const BackendEntry& entry = find_entry(backend_table(), std::string(name));
    const Options options = options_of(name, entry.options);
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
  std::string reason;
  const std::int32_t gpus = count_devices(kSought, reason);
  const bool counted = is_typed("num_gpus", arguments);
  for (RunConfig& run : runs) {
    if (!asks(run)) continue;
    run.device = gpus > 0 ? kSought : kElse;
    if (gpus > 0 && !counted) run.num_gpus = std::min(run.num_gpus, gpus);
  }
  if (gpus > 0) return fmt::format("--device auto is {}: this machine has {}", kSought, gpus);
  return fmt::format("--device auto is {}: {}", kElse, reason);
}

}  // namespace penstock
