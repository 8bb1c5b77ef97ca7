// SPDX-License-Identifier: Apache-2.0
// A whole data set, each sample once, for the tools that look at all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dataflow/decoder.h"
#include "dataflow/source.h"

namespace penstock {

struct OpenDataset {
  std::string directory;        ///< what --data-dir of a run would be
  std::string source = "auto";  ///< as queue's option `source`
  bool shuffle = false;
  std::uint64_t seed = 1;  ///< of the order
  std::int32_t threads = 1;
  std::stop_token stop{};  ///< of reading what is read before the first sample
};

/// Labels may be up to a million. Throws ConfigError where there is no such data set, and Error
/// where it is stopped.
std::unique_ptr<Source> open_dataset(const OpenDataset& order);

/// What makes of a sample of that kind the whole image, whatever its size, in that of the row. All
/// of its pixels are decoded.
std::unique_ptr<Decoder> make_whole_image_decoder(SampleKind kind);

}  // namespace penstock
