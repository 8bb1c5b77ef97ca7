// SPDX-License-Identifier: Apache-2.0
// A decoder for tests of the decode pool: its pixels identify the sample.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "dataflow/decoder.h"

namespace penstock {

inline constexpr BatchSpec kSpec{.images = 5, .image = {2, 4, 3}, .classes = 1 << 20};

/// Writes the index, the epoch, and eight random bytes into the row.
class IndexDecoder final : public Decoder {
 public:
  explicit IndexDecoder(std::function<void(const Sample&)> before = {})
      : before_(std::move(before)) {}
  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    EXPECT_EQ(row.row_bytes, 12);
    if (before_) before_(sample);
    const std::uint64_t words[3] = {sample.index, sample.epoch, random.bits()};
    std::memcpy(row.data, words, sizeof words);
  }

 private:
  const std::function<void(const Sample&)> before_;
};

}  // namespace penstock
