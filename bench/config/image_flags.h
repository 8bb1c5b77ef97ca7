// SPDX-License-Identifier: Apache-2.0
// Flags of tf_cnn_benchmarks for what is done to images, which options of the feeder `queue` say as
// well.
#pragma once

#include <vector>

#include "bench/flags.h"
#include "bench/run_config.h"

namespace penstock {

/// --data-name, --resize-method, --distortions, --distort-color-in-yiq and
/// --datasets-repeat-cached-sample. They add to
/// `config.fake_location`, which has to be `queue` and has to be set before they are.
std::vector<Flag> image_flags(RunConfig& config);

}  // namespace penstock
