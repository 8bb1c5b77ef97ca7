// SPDX-License-Identifier: Apache-2.0
// Decodes an encoded sample into pixels in a row of a batch. Region, scale and flip happen in one
// pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "dataflow/random.h"
#include "dataflow/sample.h"

namespace penstock {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Fills the whole row. Draws the augmentation from `random`; the pixels depend on the sample,
  /// the row's shape and `random` alone. Each worker thread has one decoder. Throws DataError if
  /// the bytes are not such an image. The row's content is then undefined, and the decoder is ready
  /// for the next sample.
  virtual void decode(const Sample& sample, const ImageView& row, Random& random) = 0;
  /// How many images since the last call another engine decoded than the one that was asked for.
  virtual std::int64_t take_substituted() noexcept { return 0; }
};

/// A decoder that changes what another one decodes.
class DecoderOver : public Decoder {
 public:
  explicit DecoderOver(std::unique_ptr<Decoder> decoder) : decoder_(std::move(decoder)) {}
  std::int64_t take_substituted() noexcept final { return decoder_->take_substituted(); }

 protected:
  const std::unique_ptr<Decoder> decoder_;
};

struct DecoderEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  std::unique_ptr<Decoder> (*make)(const Options&) = nullptr;
};

/// Every decoder of this program. The build generates the table from the component lists.
const Table<DecoderEntry>& decoder_table();

}  // namespace penstock
