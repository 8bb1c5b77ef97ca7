// SPDX-License-Identifier: Apache-2.0
// Opens a whole data set, each sample once, for tools that read all of it.
//
// Makes the default data set for runs without --data-dir.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "bench/config/run_config.h"
#include "dataflow/decoder.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"

namespace penstock::dataset {

struct OpenDataset {
  std::string directory;        ///< as --data-dir of a run
  std::string source = "auto";  ///< as queue's option `source`
  bool shuffle = false;
  std::uint64_t seed = 1;  ///< of the order
  std::int32_t threads = 1;
  std::stop_token stop{};  ///< stops reading before the first sample
};

/// Labels may be up to a million. Throws ConfigError if there is no such data set, and Error if it
/// is stopped.
std::unique_ptr<Source> open_dataset(const OpenDataset& order);

/// Returns a decoder from a sample of this kind to the whole image, scaled to the size of the row.
/// It decodes all pixels.
std::unique_ptr<Decoder> make_whole_image_decoder(SampleKind kind);

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

}  // namespace penstock::dataset
