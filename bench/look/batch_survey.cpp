// SPDX-License-Identifier: Apache-2.0
#include "bench/look/batch_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/values/float16.h"

namespace penstock::look {
namespace {

constexpr std::size_t kLabelsShown = 8;

std::string_view name_of(DType type) {
  constexpr std::string_view kNames[] = {"uint8", "int32", "float16", "bfloat16", "float32"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string shape_text(const BatchSpec& spec) {
  const ImageShape& image = spec.image;
  return spec.planar ? fmt::format("[{},{},{},{}] (NCHW)", spec.images, image.channels,
                                   image.height, image.width)
                     : fmt::format("[{},{},{},{}] (NHWC)", spec.images, image.height, image.width,
                                   image.channels);
}

/// The labels, the most frequent first.
std::vector<std::pair<std::int32_t, std::int64_t>> ranked(
    const std::map<std::int32_t, std::int64_t>& labels) {
  std::vector<std::pair<std::int32_t, std::int64_t>> result(labels.begin(), labels.end());
  std::ranges::stable_sort(result,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

std::size_t hash_of(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

double ChannelFigures::mean() const noexcept {
  return values == 0 ? 0 : sum / static_cast<double>(values);
}

double ChannelFigures::deviation() const noexcept {
  if (values == 0) return 0;
  return std::sqrt(std::max(0.0, squares / static_cast<double>(values) - mean() * mean()));
}

BatchSurvey::BatchSurvey(const BatchSpec& spec)
    : spec_(spec),
      pixels_(spec.image.elements() / static_cast<std::size_t>(spec.image.channels)),
      channels_(static_cast<std::size_t>(spec.image.channels)),
      values_(spec.image.elements()) {}

std::size_t BatchSurvey::place(std::size_t pixel, std::size_t channel) const noexcept {
  return spec_.planar ? channel * pixels_ + pixel : pixel * channels_.size() + channel;
}

std::span<const float> BatchSurvey::values_of(const Batch& batch, std::size_t image) const {
  const std::byte* const row = batch.pixels.data() + image * spec_.row_bytes();
  switch (spec_.pixel) {
    case DType::u8:
      std::transform(row, row + values_.size(), values_.begin(),
                     [](std::byte value) { return static_cast<float>(value); });
      break;
    case DType::f16:
      values::widen(reinterpret_cast<const values::Fp16*>(row), values_.data(), values_.size());
      break;
    case DType::bf16:
      for (std::size_t i = 0; i < values_.size(); ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, row + 2 * i, sizeof bits);
        values_[i] = std::bit_cast<float>(std::uint32_t{bits} << 16);
      }
      break;
    case DType::f32:
      std::memcpy(values_.data(), row, spec_.row_bytes());
      break;
    case DType::i32:
      PENSTOCK_ASSERT(false);
  }
  return values_;
}

void BatchSurvey::add_image(std::span<const float> values) {
  bool one_colour = true, grey = channels_.size() == 3;
  for (std::size_t channel = 0; channel < channels_.size(); ++channel) {
    ChannelFigures& figures = channels_[channel];
    float low = values[place(0, channel)], high = low;
    double sum = 0, squares = 0;
    std::int64_t finite = 0;
    for (std::size_t pixel = 0; pixel < pixels_; ++pixel) {
      const float value = values[place(pixel, channel)];
      if (channel > 0) grey = grey && value == values[place(pixel, 0)];
      one_colour = one_colour && value == values[place(0, channel)];
      if (!std::isfinite(value)) continue;
      if (finite++ == 0) low = high = value;
      low = std::min(low, value);
      high = std::max(high, value);
      sum += value;
      squares += double{value} * value;
    }
    not_finite_ += static_cast<std::int64_t>(pixels_) - finite;
    if (finite == 0) continue;
    figures.low = std::min(figures.low, double{low});
    figures.high = std::max(figures.high, double{high});
    figures.sum += sum;
    figures.squares += squares;
    figures.values += finite;
  }
  one_colour_ += one_colour ? 1 : 0;
  grey_ += grey && !one_colour ? 1 : 0;
}

void BatchSurvey::add(const Batch& batch) {
  const auto count = static_cast<std::size_t>(batch.valid);
  const std::span<const std::int32_t> labels = batch.labels.first(count);
  std::size_t hash = hash_of(std::as_bytes(labels));
  for (std::size_t image = 0; image < count; ++image) {
    add_image(values_of(batch, image));
    const std::size_t pixels =
        hash_of(batch.pixels.subspan(image * spec_.row_bytes(), spec_.row_bytes()));
    image_hashes_.insert(pixels);
    hash = hash * 31 + pixels;
    ++labels_[labels[image]];
  }
  batch_hashes_.insert(hash);
  if (count > 1 && std::ranges::count(labels, labels[0]) == std::ssize(labels)) {
    ++one_label_batches_;
  }
  ++batches_;
  images_ += batch.valid;
}

ChannelFigures BatchSurvey::all_channels() const {
  ChannelFigures all;
  for (const ChannelFigures& one : channels_) {
    all.low = std::min(all.low, one.low);
    all.high = std::max(all.high, one.high);
    all.sum += one.sum;
    all.squares += one.squares;
    all.values += one.values;
  }
  return all;
}

dataset::Photo BatchSurvey::picture(const Batch& batch, std::size_t image) const {
  const std::span<const float> values = values_of(batch, image);
  const ChannelFigures all = all_channels();
  const bool bytes = spec_.pixel == DType::u8;
  const double low = bytes ? 0 : all.low, range = bytes ? 255 : all.high - all.low;
  const std::size_t green = channels_.size() > 2 ? 1 : 0, blue = channels_.size() > 2 ? 2 : 0;
  dataset::Photo photo{spec_.image.width, spec_.image.height, {}};
  photo.rgb.reserve(3 * pixels_);
  for (std::size_t pixel = 0; pixel < pixels_; ++pixel) {
    for (const std::size_t channel : {std::size_t{0}, green, blue}) {
      const double value = values[place(pixel, channel)];
      const double light = std::isfinite(value) && range > 0 ? 255 * (value - low) / range : 0;
      photo.rgb.push_back(static_cast<std::uint8_t>(std::clamp(light + 0.5, 0.0, 255.0)));
    }
  }
  return photo;
}

std::vector<std::string> BatchSurvey::unusual_values() const {
  std::vector<std::string> said;
  const ChannelFigures all = all_channels();
  if (not_finite_ > 0) {
    said.push_back(fmt::format("{} values are infinite or not a number", not_finite_));
  }
  if (one_colour_ > 0) {
    said.push_back(fmt::format("{} of {} images have one colour only", one_colour_, images_));
  }
  if (grey_ == images_) said.emplace_back("all images are grey: their channels are equal");
  if (all.values == 0) return said;
  if (spec_.pixel == DType::u8) {
    if (all.high <= 1) {
      said.push_back(fmt::format(
          "all pixels are {}: values from 0 to 1 may have been cast to bytes; multiply them by "
          "255 before",
          all.high == 0 ? "0" : "0 or 1"));
    } else if (all.high - all.low < 16) {
      said.push_back(
          fmt::format("pixels lie between {:.0f} and {:.0f}: they may have been "
                      "normalised before they were cast to bytes",
                      all.low, all.high));
    }
    return said;
  }
  if (all.low >= 0 && all.high > 16) {
    said.push_back(
        fmt::format("values lie between {:.4g} and {:.4g} like bytes, but the device "
                    "does not normalise {}; send uint8, or normalise them",
                    all.low, all.high, name_of(spec_.pixel)));
  } else if (all.low >= 0 && all.high <= 1) {
    said.emplace_back("values lie between 0 and 1: they are scaled, and no mean was taken away");
  }
  return said;
}

std::vector<std::string> BatchSurvey::unusual_labels() const {
  std::vector<std::string> said;
  std::int64_t outside = 0;
  for (const auto& [label, count] : labels_) {
    if (label < 0 || label >= spec_.classes) outside += count;
  }
  if (outside > 0) {
    said.push_back(fmt::format("{} labels are outside 0 to {}; set --classes, or correct them",
                               outside, spec_.classes - 1));
  }
  if (labels_.size() == 1 && images_ > 1) {
    said.push_back(fmt::format("all labels are {}", labels_.begin()->first));
  } else if (one_label_batches_ > 0) {
    said.push_back(fmt::format("{} of {} batches hold one label only: the data may not be shuffled",
                               one_label_batches_, batches_));
  }
  return said;
}

std::vector<std::string> BatchSurvey::unusual() const {
  std::vector<std::string> said;
  const auto batches = std::ssize(batch_hashes_), images = std::ssize(image_hashes_);
  if (batches_ > 1 && batches == 1) {
    said.emplace_back("all batches are equal");
  } else if (batches < batches_) {
    said.push_back(
        fmt::format("{} of {} batches repeat an earlier one", batches_ - batches, batches_));
  }
  if (images_ > 1 && images == 1) {
    said.emplace_back("all images are equal");
  } else if (images < images_ && batches == batches_) {
    said.push_back(fmt::format("{} of {} images repeat an earlier one", images_ - images, images_));
  }
  for (std::string& more : unusual_values()) said.push_back(std::move(more));
  for (std::string& more : unusual_labels()) said.push_back(std::move(more));
  return said;
}

std::string BatchSurvey::to_text(const std::string& rate) const {
  std::string text = fmt::format(
      "batches      {}, of {} images, {:.1f} MB each\n"
      "pixels       {} {}, {}\n",
      batches_, spec_.images, 1e-6 * static_cast<double>(spec_.bytes()), name_of(spec_.pixel),
      shape_text(spec_),
      spec_.normalised ? "which the device takes as normalised" : "which the device normalises");
  for (std::size_t channel = 0; channel < channels_.size(); ++channel) {
    const ChannelFigures& of = channels_[channel];
    text += fmt::format("  channel {}  min {:.4g}  mean {:.4g}  deviation {:.4g}  max {:.4g}\n",
                        channel, of.low, of.mean(), of.deviation(), of.high);
  }
  if (!labels_.empty()) {
    text +=
        fmt::format("labels       {} to {}; {} of {} classes\n  most often", labels_.begin()->first,
                    labels_.rbegin()->first, labels_.size(), spec_.classes);
    const auto most = ranked(labels_);
    for (std::size_t i = 0; i < std::min(kLabelsShown, most.size()); ++i) {
      text += fmt::format("{} {} ({})", i == 0 ? "" : ",", most[i].first, most[i].second);
    }
    text += '\n';
  }
  text += fmt::format("different    {} of {} batches, {} of {} images\n", batch_hashes_.size(),
                      batches_, image_hashes_.size(), images_);
  if (!rate.empty()) text += fmt::format("rate         {}\n", rate);
  const std::vector<std::string> odd = unusual();
  text += odd.empty() ? "unusual      nothing\n" : "";
  for (const std::string& sentence : odd) text += fmt::format("unusual      {}\n", sentence);
  return text;
}

nlohmann::ordered_json BatchSurvey::to_json() const {
  using Json = nlohmann::ordered_json;
  Json channels = Json::array(), labels = Json::object();
  for (const ChannelFigures& of : channels_) {
    if (of.values == 0) continue;
    channels.push_back(
        {{"min", of.low}, {"mean", of.mean()}, {"deviation", of.deviation()}, {"max", of.high}});
  }
  for (const auto& [label, count] : ranked(labels_)) labels[std::to_string(label)] = count;
  const ImageShape& image = spec_.image;
  return {{"batches", batches_},
          {"images", images_},
          {"dtype", name_of(spec_.pixel)},
          {"layout", spec_.planar ? "NCHW" : "NHWC"},
          {"batch_size", spec_.images},
          {"height", image.height},
          {"width", image.width},
          {"channels", channels},
          {"classes", spec_.classes},
          {"labels", labels},
          {"different_batches", batch_hashes_.size()},
          {"different_images", image_hashes_.size()},
          {"unusual", unusual()}};
}

}  // namespace penstock::look
