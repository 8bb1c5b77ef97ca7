// SPDX-License-Identifier: Apache-2.0
// From an encoded sample to pixels in a row of a batch: region, scale and flip in one go.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "dataflow/random.h"
#include "dataflow/sample.h"

namespace penstock {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// One decoder per worker thread. Fills the whole row, drawing the augmentation from `random`;
  /// the pixels depend on nothing else. Throws DataError for bytes that are no such image, after
  /// which the row holds rubbish and the decoder is ready for the next sample.
  virtual void decode(const Sample& sample, const ImageView& row, Random& random) = 0;
};

struct DecoderEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  std::unique_ptr<Decoder> (*make)(const Options&) = nullptr;
};

/// Every decoder of this program; generated from the component lists.
const Table<DecoderEntry>& decoder_table();

}  // namespace penstock
