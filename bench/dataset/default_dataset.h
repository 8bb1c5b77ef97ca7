// SPDX-License-Identifier: Apache-2.0
// Prepares the data of a run: makes the default data set for runs without --data-dir.
#pragma once

#include <stop_token>
#include <string>

#include "bench/config/run_config.h"
#include "feeders/feeder.h"

namespace penstock::dataset {

/// Makes the default synthetic data set in `data_dir`, such as "data/train". Does nothing if the
/// folder already holds something. Prints one line on stderr about what it makes and how long it
/// takes. Several processes may call it at once. Throws Unavailable if this build cannot make data
/// sets, ConfigError if the folder cannot be written, and Error on a stop request.
void ensure_default_dataset(const std::string& data_dir, const std::stop_token& stop);

/// Throws ConfigError if --data-dir does not exist, for every feeder. A list with braces is checked
/// by the source that accepts lists.
void refuse_missing_data(const RunConfig& config);

/// Prepares the data of a run: makes data/train if the feeder reads files and no folder is given.
/// Throws what both functions above throw.
void ensure_data_of(const RunConfig& config, const FeederEntry& feeder,
                    const std::stop_token& stop);

/// Makes the default synthetic data set in the folder `parent`, and says so in one line on stderr.
/// Throws Unavailable if this build lacks the libraries, and ConfigError.
void make_default_dataset(const std::string& parent, const std::stop_token& stop);

}  // namespace penstock::dataset
