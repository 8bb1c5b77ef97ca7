// SPDX-License-Identifier: Apache-2.0
// Opens a whole data set, each sample once, for tools that read all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "dataflow/decoder.h"
#include "dataflow/source.h"

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

}  // namespace penstock::dataset
