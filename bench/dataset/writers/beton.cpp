// SPDX-License-Identifier: Apache-2.0
// FFCV's .beton, version 2: one file with fields "image" (JPEG) and "label" (int).
//
//   header  := u16 version, u16 fields, u32 page, u64 samples, u64 where the allocations lie
//   field   := u8 type, char name[16], u8 arguments[1024]
//   samples := each u8 mode (0: JPEG), u16 width, u16 height, u64 where the image lies,
//              3 unused bytes, i64 label
//   pages   := from a multiple of the page on; no image lies in two of them, unless it is larger
//   allocations := each u64 sample, u64 where, u64 bytes
#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <vector>

#include "bench/dataset/jpeg_file.h"
#include "bench/dataset/shard_file.h"
#include "dataflow/error.h"

namespace penstock::dataset {
namespace {

constexpr std::uint32_t kPage = std::uint32_t{8} << 20;  // FFCV's own
constexpr std::size_t kHeaderBytes = 24, kNameBytes = 16, kFieldBytes = 1 + kNameBytes + 1024,
                      kSampleBytes = 24;

class BetonWriter final : public DatasetWriter {
 public:
  explicit BetonWriter(const WriterPlan& plan)
      : plan_(plan), file_(plan.directory + "/train.beton") {
    append_header(0);
    append_field(2, "image");
    append_field(1, "label");
    file_.append_zeros(plan.samples * kSampleBytes);
    samples_.reserve(plan.samples * kSampleBytes);
    page_end_ = begin_page();
  }

  void add(std::span<const std::byte> image, std::int32_t label) override {
    if (image.size() > kPage) {
      throw ConfigError(
          fmt::format("sample {} has {} bytes, more than a page of '{}' ({}); choose "
                      "another format",
                      allocations_.size(), image.size(), file_.path(), kPage));
    }
    if (file_.size() + image.size() > page_end_) page_end_ = begin_page();
    const JpegHeader header = read_jpeg_header(
        image, fmt::format("sample {} of '{}'", allocations_.size(), file_.path()));
    const auto width = static_cast<std::uint16_t>(header.width),
               height = static_cast<std::uint16_t>(header.height);
    const std::uint64_t place = file_.size();
    const std::int64_t wide = label;
    std::byte sample[kSampleBytes] = {};
    std::memcpy(sample + 1, &width, sizeof(width));
    std::memcpy(sample + 3, &height, sizeof(height));
    std::memcpy(sample + 5, &place, sizeof(place));
    std::memcpy(sample + 16, &wide, sizeof(wide));
    samples_.insert(samples_.end(), std::begin(sample), std::end(sample));
    allocations_.push_back({allocations_.size(), place, image.size()});
    file_.append(image);
  }

  void finish() override {
    file_.append_zeros(static_cast<std::size_t>(page_end_ - file_.size()));
    const std::uint64_t place = file_.size();
    file_.append(std::as_bytes(std::span(allocations_)));
    file_.overwrite(kHeaderBytes + 2 * kFieldBytes, samples_);
    file_.overwrite(kHeaderBytes - sizeof(place), std::as_bytes(std::span(&place, 1)));
    file_.close();
  }

 private:
  struct Allocation {
    std::uint64_t sample, place, bytes;
  };

  void append_header(std::uint64_t allocations) {
    file_.append_number(std::uint16_t{2});
    file_.append_number(std::uint16_t{2});
    file_.append_number(kPage);
    file_.append_number(plan_.samples);
    file_.append_number(allocations);
  }
  void append_field(std::uint8_t type, std::string_view name) {
    file_.append_number(type);
    file_.append(name);
    file_.append_zeros(kFieldBytes - 1 - name.size());
  }
  /// Fills the current page, and returns the end of the next one.
  std::uint64_t begin_page() {
    file_.append_zeros(static_cast<std::size_t>((kPage - file_.size() % kPage) % kPage));
    return file_.size() + kPage;
  }

  const WriterPlan plan_;
  ShardFile file_;
  std::vector<std::byte> samples_;
  std::vector<Allocation> allocations_;
  std::uint64_t page_end_ = 0;
};

}  // namespace

extern constinit const DatasetWriterEntry beton_dataset_writer{
    .name = "beton",
    .summary = "FFCV file with the JPEGs unchanged",
    .make = make_writer<BetonWriter>,
};

}  // namespace penstock::dataset
