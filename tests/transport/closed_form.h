// SPDX-License-Identifier: Apache-2.0
// Batches whose every byte follows from (producer, batch, index in the batch), so that whatever
// arrives can be named, and a ledger of what arrived where.
#pragma once

#include <gtest/gtest.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "dataflow/batch.h"

namespace penstock::transport {

/// A producer sends at most so many batches; there are at most 64 producers.
inline constexpr std::int32_t kMostBatches = 1000;

inline BatchSpec spec_of(std::int32_t images, ImageShape image) {
  return {.images = images, .image = image, .classes = 64 * kMostBatches * images};
}
/// Some hundred bytes, of odd sizes.
inline const BatchSpec kTiny = spec_of(4, {5, 7, 3});
/// 120 kB: a few of them fill a connection.
inline const BatchSpec kLarge = spec_of(4, {100, 100, 3});

struct BatchName {
  std::int32_t producer = 0, batch = 0;
  auto operator<=>(const BatchName&) const = default;
};
inline void PrintTo(const BatchName& name, std::ostream* out) {
  *out << "batch " << name.batch << " of producer " << name.producer;
}

inline std::int32_t label_of(const BatchSpec& spec, BatchName name, std::int32_t index) {
  return (name.producer * kMostBatches + name.batch) * spec.images + index;
}
/// Byte `at` of the image with that label.
inline std::byte pixel_of(std::int32_t label, std::size_t at) {
  return static_cast<std::byte>(static_cast<std::size_t>(label) * 131 + at * 7 + at / 256);
}

inline std::vector<std::byte> pixels_of(const BatchSpec& spec, BatchName name) {
  std::vector<std::byte> pixels;
  pixels.reserve(spec.pixel_bytes());
  for (std::int32_t index = 0; index < spec.images; ++index) {
    const std::int32_t label = label_of(spec, name, index);
    for (std::size_t at = 0; at < spec.row_bytes(); ++at) pixels.push_back(pixel_of(label, at));
  }
  return pixels;
}

/// Which batch this is; empty: none, since some label or pixel is not its own.
inline std::optional<BatchName> name_of(const BatchSpec& spec, const Batch& batch) {
  if (batch.valid != spec.images) return std::nullopt;
  const std::int32_t number = batch.labels[0] / spec.images;
  const BatchName name{number / kMostBatches, number % kMostBatches};
  for (std::int32_t index = 0; index < spec.images; ++index) {
    const std::int32_t label = label_of(spec, name, index);
    if (batch.labels[static_cast<std::size_t>(index)] != label) return std::nullopt;
    const auto row =
        batch.pixels.subspan(static_cast<std::size_t>(index) * spec.row_bytes(), spec.row_bytes());
    for (std::size_t at = 0; at < row.size(); ++at) {
      if (row[at] != pixel_of(label, at)) return std::nullopt;
    }
  }
  return name;
}

/// How often each batch arrived. One thread at a time.
class Ledger {
 public:
  void arrived(BatchName name) {
    ++counts_[name];
    ++total_;
    const auto [last, first] = last_.try_emplace(name.producer, name.batch);
    if (!first && last->second >= name.batch) ++disorders_;
    last->second = name.batch;
  }
  std::int64_t total() const { return total_; }
  std::int64_t count(BatchName name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }
  /// Batches that came behind a later one of the same producer, or a second time.
  std::int64_t disorders() const { return disorders_; }
  /// Of that producer.
  std::int64_t total_of(std::int32_t producer) const {
    std::int64_t total = 0;
    for (const auto& [name, count] : counts_) total += name.producer == producer ? count : 0;
    return total;
  }
  /// Fails where one of these batches did not come exactly once.
  void expect_once(std::int32_t producer, std::int32_t first, std::int32_t end) const {
    for (std::int32_t batch = first; batch < end; ++batch) {
      EXPECT_EQ(count({producer, batch}), 1) << "batch " << batch << " of producer " << producer;
    }
  }
  void expect_none_twice() const {
    for (const auto& [name, count] : counts_) {
      EXPECT_EQ(count, 1) << "batch " << name.batch << " of producer " << name.producer;
    }
  }

 private:
  std::map<BatchName, std::int64_t> counts_;
  std::map<std::int32_t, std::int32_t> last_;
  std::int64_t total_ = 0, disorders_ = 0;
};

}  // namespace penstock::transport
