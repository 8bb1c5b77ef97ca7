// SPDX-License-Identifier: Apache-2.0
// The step times of a device that was measured: read from the results.json of `penstock sweep`, or
// from what `penstock run --json` printed.
//
// The device's own time of a step is step_ms - device_idle_ms. The first step of each run is left
// out: how long the device was idle before it is not known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::emulated {

struct Recording {
  std::vector<double> step_ms;  ///< the device's own, of all repetitions one behind the other
  std::int32_t batch = 0;       ///< images of a step on one device
  std::string origin;           ///< "row 'gpu' of 'results.json': resnet50 on cpu"
  std::uint64_t warm_up = 0;    ///< steps before the first one of each run

  double mean_step_ms() const;
};

/// Of a file of several rows, the one that `row` names: its number from 1, its feeder, or its label
/// "feeder, key value"; with an empty `row` the only one, else the one of the feeder `gpu`. `file`
/// is what messages call it.
/// Throws DataError where the text is damaged; ConfigError where it is of another program or a
/// newer one, has no such row, or too few steps.
Recording parse_recording(std::string_view text, const std::string& row, const std::string& file);

/// The same of a file. Throws ConfigError where it cannot be read.
Recording read_recording(const std::filesystem::path& file, const std::string& row);

}  // namespace penstock::emulated
