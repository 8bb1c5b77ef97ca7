// SPDX-License-Identifier: Apache-2.0
// One image on its way from a Source to a row of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/batch.h"

namespace penstock {

struct Sample {
  std::vector<std::byte> bytes;  ///< as read; keeps its capacity from sample to sample
  /// Instead of `bytes`, where the source holds them itself and lives as long as the sample.
  std::span<const std::byte> lent;
  std::int32_t label = -1;
  std::uint64_t index = 0;  ///< of the sample within the source: the same in every epoch
  std::uint64_t epoch = 0;
  std::string_view file;  ///< owned by the source; lives as long as it
  std::uint64_t offset = 0;

  /// The encoded image, or its pixels where the source has decoded it.
  std::span<const std::byte> content() const noexcept {
    return lent.empty() ? std::span<const std::byte>(bytes) : lent;
  }
};

/// Where an image goes: a row of a batch.
struct ImageView {
  std::byte* data = nullptr;
  ImageShape shape{};
  DType dtype = DType::u8;
  std::ptrdiff_t row_bytes = 0;  ///< from one line of pixels to the next
};

}  // namespace penstock
