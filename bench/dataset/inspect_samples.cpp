// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/inspect_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "bench/dataset/open_dataset.h"
#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/random.h"
#include "dataflow/source.h"

namespace penstock::dataset {
namespace {

std::unique_ptr<Source> open(const DatasetInventory& inventory, const std::stop_token& stop) {
  return open_dataset(
      {.directory = inventory.of.directory, .source = inventory.of.source, .stop = stop});
}

std::string name_of(const Sample& sample) {
  return fmt::format("{} at byte {}", sample.file, sample.offset);
}

void add_odd(DatasetInventory& inventory, const Sample& sample, std::string reason) {
  inventory.odd.push_back({fmt::format("sample {}", sample.index), std::move(reason)});
}

/// Calls `use` for each readable sample, until `use` ends the loop. Unreadable samples are skipped,
/// and reported if `names_bad`. Damage that `use` finds skips only that sample.
template <class Use>
void for_each_sample(Source& source, DatasetInventory& inventory, bool names_bad, const Use& use) {
  Sample sample;
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = source.next(sample) && use(sample);
    } catch (const DataError& error) {
      if (names_bad) add_odd(inventory, sample, error.what());
    }
  }
}

void count_size(DatasetInventory& inventory, std::int32_t width, std::int32_t height,
                std::int64_t bytes) {
  inventory.file_bytes.push_back(static_cast<double>(bytes));
  inventory.widths.push_back(width);
  inventory.heights.push_back(height);
  ++inventory.sizes[fmt::format("{}x{}", width, height)];
  inventory.portrait += height > width ? 1 : 0;
}

void count_sample(DatasetInventory& inventory, const Sample& sample, SampleKind kind) {
  const auto bytes = static_cast<std::int64_t>(sample.content().size());
  if (kind == SampleKind::encoded) {
    count_jpeg(inventory, read_jpeg_header(sample.content(), name_of(sample)), bytes);
    if (!has_end_marker(sample.content())) {
      add_odd(inventory, sample, fmt::format("{} {}", name_of(sample), kNoEndMarker));
    }
    return;
  }
  const PixelLayout& layout = sample.layout;
  count_size(inventory, layout.width, layout.height, bytes);
  ++inventory.colour_spaces[layout.channels == 1 ? "grey pixels"
                                                 : (layout.bgr ? "BGR pixels" : "RGB pixels")];
}

/// The whole image, scaled down if it does not fit.
Photo draw(Decoder& decoder, const Sample& sample, SampleKind kind, std::int32_t width,
           std::int32_t height) {
  std::int32_t full_width = sample.layout.width, full_height = sample.layout.height;
  if (kind == SampleKind::encoded) {
    const JpegHeader header = read_jpeg_header(sample.content(), name_of(sample));
    full_width = header.width;
    full_height = header.height;
  }
  const double scale = std::min(
      {1.0, static_cast<double>(width) / full_width, static_cast<double>(height) / full_height});
  const auto scaled = [&](std::int32_t length) {
    return std::max(1, static_cast<std::int32_t>(scale * length));
  };
  const ImageShape shape{.height = scaled(full_height), .width = scaled(full_width), .channels = 3};
  Photo photo{shape.width, shape.height, std::vector<std::uint8_t>(shape.elements())};
  Random random(0, 0, sample.index);
  decoder.decode(sample,
                 {reinterpret_cast<std::byte*>(photo.rgb.data()), shape, DType::u8,
                  std::ptrdiff_t{3} * shape.width},
                 random);
  return photo;
}

}  // namespace

bool has_end_marker(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[bytes.size() - 2] == std::byte{0xff} &&
         bytes.back() == std::byte{0xd9};
}

void count_jpeg(DatasetInventory& inventory, const JpegHeader& header, std::int64_t bytes) {
  count_size(inventory, header.width, header.height, bytes);
  ++inventory.subsamplings[header.subsampling];
  ++inventory.colour_spaces[header.colour_space];
  inventory.progressive += header.progressive ? 1 : 0;
}

void inspect_samples(DatasetInventory& inventory, const std::stop_token& stop) {
  const std::unique_ptr<Source> source = open(inventory, stop);
  std::map<std::int32_t, ClassInventory> classes;
  for_each_sample(*source, inventory, true, [&](Sample& sample) {
    if (stop.stop_requested()) return false;
    source->load(sample);
    count_sample(inventory, sample, source->kind());
    ClassInventory& owner = classes[sample.label];
    owner.bytes += static_cast<std::int64_t>(sample.content().size());
    owner.samples.push_back(sample.index);
    return true;
  });
  for (auto& [label, owner] : classes) {
    owner.name = fmt::format("label {}", label);
    owner.label = label;
    inventory.classes.push_back(std::move(owner));
  }
  inventory.note = source->note();
  if (inventory.images() > 0 || stop.stop_requested()) return;
  throw ConfigError(fmt::format("{} holds no image that can be read{}{}; check --data-dir",
                                inventory.of.directory,
                                inventory.odd.empty() ? "" : "; the first: ",
                                inventory.odd.empty() ? "" : inventory.odd.front().reason));
}

std::map<std::uint64_t, Photo> draw_samples(DatasetInventory& inventory,
                                            std::set<std::uint64_t> indices, std::int32_t width,
                                            std::int32_t height, const std::stop_token& stop) {
  const std::unique_ptr<Source> source = open(inventory, stop);
  const std::unique_ptr<Decoder> decoder = make_whole_image_decoder(source->kind());
  std::map<std::uint64_t, Photo> photos;
  std::size_t found = 0;
  for_each_sample(*source, inventory, false, [&](Sample& sample) {
    if (stop.stop_requested() || found == indices.size()) return false;
    if (!indices.contains(sample.index)) return true;
    ++found;
    try {
      source->load(sample);
      photos.emplace(sample.index, draw(*decoder, sample, source->kind(), width, height));
    } catch (const DataError& error) {
      add_odd(inventory, sample, error.what());
    }
    return true;
  });
  return photos;
}

}  // namespace penstock::dataset
