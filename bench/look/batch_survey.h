// SPDX-License-Identifier: Apache-2.0
// What the batches of a feeder hold: the range of their pixels, their labels, what repeats, and
// what is unusual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "bench/dataset/jpeg_file.h"
#include "dataflow/batch.h"

namespace penstock::look {

/// The finite values of one channel.
struct ChannelFigures {
  double low = std::numeric_limits<double>::infinity(),
         high = -std::numeric_limits<double>::infinity();
  double sum = 0, squares = 0;
  std::int64_t values = 0;

  double mean() const noexcept;
  double deviation() const noexcept;
};

/// Figures of all batches that were added. One thread at a time.
class BatchSurvey {
 public:
  explicit BatchSurvey(const BatchSpec& spec);

  /// Reads every pixel and every label of the batch.
  void add(const Batch& batch);
  /// The picture of an image of `batch`, which has been added. If pixels are not 0..255, black is
  /// the lowest value so far, and white the highest.
  dataset::Photo picture(const Batch& batch, std::size_t image) const;

  std::int64_t batches() const noexcept { return batches_; }
  std::int64_t images() const noexcept { return images_; }
  std::span<const ChannelFigures> channels() const noexcept { return channels_; }

  /// "every batch is the same", and so on: one sentence each.
  std::vector<std::string> unusual() const;
  /// Lines for people, with `rate` as one of them.
  std::string to_text(const std::string& rate) const;
  nlohmann::ordered_json to_json() const;

 private:
  /// The values of an image, in its order.
  std::span<const float> values_of(const Batch& batch, std::size_t image) const;
  std::size_t place(std::size_t pixel, std::size_t channel) const noexcept;
  void add_image(std::span<const float> values);
  ChannelFigures all_channels() const;
  std::vector<std::string> unusual_values() const;
  std::vector<std::string> unusual_labels() const;

  const BatchSpec spec_;
  const std::size_t pixels_;  // of one channel of an image
  std::int64_t batches_ = 0, images_ = 0;
  std::vector<ChannelFigures> channels_;
  std::int64_t not_finite_ = 0;             // values
  std::int64_t one_colour_ = 0, grey_ = 0;  // images
  std::map<std::int32_t, std::int64_t> labels_;
  std::int64_t one_label_batches_ = 0;
  std::unordered_set<std::size_t> batch_hashes_, image_hashes_;
  mutable std::vector<float> values_;  // of one image
};

}  // namespace penstock::look
