// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace penstock {

/// Adds the benchmark "feeder/NAME" of a feeder as --fake-location takes it, which reads files from
/// `data_dir` if the feeder reads any.
void register_feeder_benchmark(const std::string& feeder, const std::string& data_dir);

}  // namespace penstock
