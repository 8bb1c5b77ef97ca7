// SPDX-License-Identifier: Apache-2.0
// Flags of tf_cnn_benchmarks for image processing. Options of the feeder `queue` set the same
// values.
#pragma once

#include <vector>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"

namespace penstock {

/// --data-name, --resize-method, --distortions, --distort-color-in-yiq and
/// --datasets-repeat-cached-sample. They add options to `config.fake_location`, which must be
/// `queue` and must be set before these flags.
std::vector<Flag> image_flags(RunConfig& config);

}  // namespace penstock
