// SPDX-License-Identifier: Apache-2.0
// The data set of runs that name none.
#pragma once

#include <stop_token>
#include <string>

#include "bench/run_config.h"
#include "feeders/feeder.h"

namespace penstock {

/// Makes the default synthetic data set so that `data_dir`, such as "data/train", is there
/// afterwards; does nothing where it holds something already. Says on stderr, in one line, what it
/// makes and how long that takes. Several processes may call it at once. Throws Unavailable where
/// this program cannot make data sets, ConfigError where the folder cannot be written, and Error
/// when stopped.
void ensure_default_dataset(const std::string& data_dir, const std::stop_token& stop);

/// Throws ConfigError where --data-dir names what does not exist, whichever feeder would read it. A
/// list with braces is looked up by the source that takes lists.
void refuse_missing_data(const RunConfig& config);

/// For a run: where its feeder reads files and no folder is named, data/train is made. Throws what
/// both of them throw.
void ensure_data_of(const RunConfig& config, const FeederEntry& feeder,
                    const std::stop_token& stop);

}  // namespace penstock
