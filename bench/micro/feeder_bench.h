// SPDX-License-Identifier: Apache-2.0
// Registers the micro-benchmarks of feeders.
#pragma once

#include <string>

namespace penstock {

/// Adds the benchmark "feeder/NAME" for a feeder spec as --fake-location takes it. If the feeder
/// reads files, it reads them from `data_dir`.
void register_feeder_benchmark(const std::string& feeder, const std::string& data_dir);

}  // namespace penstock
