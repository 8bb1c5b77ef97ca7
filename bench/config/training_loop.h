// SPDX-License-Identifier: Apache-2.0
// The training loop that a loader sees: --loop. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/config/run_config.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"

namespace penstock {

struct TrainingLoop {
  /// Steps that may be launched and unfinished when the loop asks for its next batch. Empty: the
  /// device decides.
  std::optional<std::int32_t> ahead;
  double launch_ms = 0;  ///< the host's time to launch a step
};

/// "sync" (0), "async" (1) or "ahead=N", and "launch=MS", separated by ':'; "": neither. Throws
/// ConfigError.
TrainingLoop parse_loop(std::string_view text);
std::string to_string(const TrainingLoop& loop);

/// Whether the feeder of the configuration is somebody's loader.
bool follows_loop(const RunConfig& config, const FeederEntry& feeder);
bool has_loader(const RunConfig& config);
/// What a sample of a run's batches is called: "img"; "samples" if it is no image.
std::string sample_unit(const RunConfig& config);
/// "img/s" or "samples/s".
std::string rate_unit(const RunConfig& config);
bool trains_images(const RunConfig& config);
/// What the samples of a run are called in its table: "images", or the unit.
std::string samples_name(const RunConfig& config);
/// "that waits for each step (--loop sync)"; empty if the run has no loop.
std::string describe_loop(const RunConfig& config);

/// The interpreter of a loader without --python: that of the environment in which this program is
/// installed, else that of $VIRTUAL_ENV, else "python3".
std::string default_python();

/// The configuration of a loader's run, whose loop and rings have the depth of `loop`. Without
/// --loop, a device that computes on the host waits for each step, and others are one step ahead.
/// Each device has one slot of a host ring.
RunConfig with_loop(RunConfig config, const BackendEntry& backend);

}  // namespace penstock
