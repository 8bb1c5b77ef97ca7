// SPDX-License-Identifier: Apache-2.0
// A source and a decoder for tests of the decode pool: the pixels identify the sample.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/source.h"

namespace penstock {

inline constexpr BatchSpec kSpec{.images = 5, .image = {2, 4, 3}, .classes = 1 << 20};

/// `size` samples per epoch, in order. Some cannot be read, like missing files.
class CountingSource final : public Source {
 public:
  CountingSource(std::uint64_t size, std::int64_t epochs, std::set<std::uint64_t> unreadable = {})
      : size_(size), epochs_(epochs), unreadable_(std::move(unreadable)) {}
  bool next(Sample& sample) override {
    EXPECT_FALSE(busy_.exchange(true)) << "two callers at a time";
    const std::uint64_t count = count_;
    const bool more = epochs_ < 0 || count < size_ * static_cast<std::uint64_t>(epochs_);
    if (more) {
      ++count_;
      sample.index = count % size_;
      sample.epoch = count / size_;
      sample.label = static_cast<std::int32_t>(sample.index);
      sample.file = "counted";
      sample.bytes.assign(8, std::byte{0});
      std::memcpy(sample.bytes.data(), &sample.index, 8);
    }
    busy_ = false;
    if (more && unreadable_.contains(sample.index))
      throw DataError("cannot read " + std::to_string(sample.index));
    return more;
  }
  SourceFacts facts() const override {
    return {.size = size_, .size_over_ranks = size_, .classes = kSpec.classes};
  }

 private:
  const std::uint64_t size_;
  const std::int64_t epochs_;
  const std::set<std::uint64_t> unreadable_;
  std::uint64_t count_ = 0;
  std::atomic<bool> busy_{false};
};

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
