// SPDX-License-Identifier: Apache-2.0
// Real files for the micro-benchmarks, held in memory: `penstock_micro --data-dir DIRECTORY`, or
// data/train. Benchmarks that find none are skipped, and say so.
#pragma once

#include <string>
#include <vector>

#include "dataflow/sample.h"

namespace penstock {

/// Set from the command line before any benchmark runs.
std::string& micro_data_directory();

/// Up to 400 images of the folder, loaded on first use; empty, with the reason in `problem`, when
/// there are none.
const std::vector<Sample>& micro_samples(std::string& problem);

}  // namespace penstock
