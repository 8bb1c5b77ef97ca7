// SPDX-License-Identifier: Apache-2.0
// Reads the step times of a measured device from the results.json of `penstock sweep` or the output
// of `penstock run --json`.
//
// The device's own time of a step is step_ms - device_idle_ms. The first step of each run is left
// out, because older records lack the device's idle time before it.
//
// Also reads the record of `penstock watch`: a step's own time is step_us - wait_us.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::emulated {

struct Recording {
  std::vector<double> step_ms;  ///< the device's own times, of all repetitions in order
  std::int32_t batch = 0;       ///< images of a step on one device
  std::string origin;           ///< "row 'gpu' of 'results.json': resnet50 on cpu"
  std::uint64_t warm_up = 0;    ///< steps before the first one of each run

  double mean_step_ms() const;
};

/// In a file of several rows, `row` selects one by its number from 1, its feeder, or its label
/// "feeder, key value". If `row` is empty: the only row, else the row of the feeder `gpu`. In a
/// record of `penstock watch`, `row` is a rank; default: the first. Messages call the file `file`.
/// Throws DataError if the text is damaged, and ConfigError if it is from another program or a
/// newer version, has no such row, or has too few steps.
Recording parse_recording(std::string_view text, const std::string& row, const std::string& file);

/// The same, from a file. Throws ConfigError if the file cannot be read.
Recording read_recording(const std::filesystem::path& file, const std::string& row);

}  // namespace penstock::emulated
