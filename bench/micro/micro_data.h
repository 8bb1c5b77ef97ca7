// SPDX-License-Identifier: Apache-2.0
// Real files for the micro-benchmarks, held in memory, from `penstock_micro --data-dir DIRECTORY`
// or data/train. Benchmarks without files are skipped with a message.
#pragma once

#include <string>
#include <vector>

#include "dataflow/sample.h"

namespace penstock {

/// The command line sets it before any benchmark runs.
std::string& micro_data_directory();

/// Up to 400 images of the folder, loaded at the first use. If there are none, it is empty and
/// `problem` holds the reason.
const std::vector<Sample>& micro_samples(std::string& problem);

}  // namespace penstock
