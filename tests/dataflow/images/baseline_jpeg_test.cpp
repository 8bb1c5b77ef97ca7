// SPDX-License-Identifier: Apache-2.0
// BaselineDecoder alone, with every instruction set of this machine. The oracle is libjpeg's full
// decode, bit for bit.
#include <gtest/gtest.h>

#include <cstdio>
// jpeglib.h needs size_t and FILE from the header above.
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "dataflow/images/jpeg/baseline.h"
#include "dataflow/random.h"
#include "tests/support/jpeg_writer.h"

namespace penstock::jpeg {
namespace {

using Bytes = std::vector<std::byte>;

class Headers {
 public:
  explicit Headers(const Bytes& bytes) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&jpeg_);
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&jpeg_, TRUE);
    known_ = read_frame(jpeg_, frame_);
  }
  Headers(const Headers&) = delete;
  ~Headers() { jpeg_destroy_decompress(&jpeg_); }
  bool known() const { return known_; }
  const Frame& frame() const { return frame_; }

 private:
  jpeg_error_mgr errors_{};
  jpeg_decompress_struct jpeg_{};
  Frame frame_;
  bool known_ = false;
};

/// Keeps rows, each in a separate block of memory, so that a sanitizer sees every excess byte.
class KeptRows {
 public:
  explicit KeptRows(std::int32_t first) : first_(first) {}
  bool decode(BaselineDecoder& decoder) {
    left_ = decoder.left();
    return decoder.decode([&](std::int32_t row) {
      EXPECT_EQ(row, first_ + static_cast<std::int32_t>(rows_.size()));
      return rows_.emplace_back(static_cast<std::size_t>(decoder.width()) * 4).data();
    });
  }
  /// Are columns [begin, end) of all rows equal to those of `image`?
  testing::AssertionResult equal(const TestImage& image, const PixelRange& columns) const {
    for (std::size_t y = 0; y < rows_.size(); ++y) {
      for (std::int32_t x = columns.first; x < columns.end; ++x) {
        const std::uint8_t* const pixel = rows_[y].data() + std::ptrdiff_t{4} * (x - left_);
        const int row = first_ + static_cast<int>(y);
        if (std::equal(pixel, pixel + 3, image.at(x, row))) continue;
        return testing::AssertionFailure()
               << "pixel " << x << ',' << row << " is " << int{pixel[0]} << ' ' << int{pixel[1]}
               << ' ' << int{pixel[2]} << ", not " << int{image.at(x, row)[0]} << ' '
               << int{image.at(x, row)[1]} << ' ' << int{image.at(x, row)[2]};
      }
    }
    return testing::AssertionSuccess();
  }
  std::size_t count() const { return rows_.size(); }

 private:
  const std::int32_t first_;
  std::int32_t left_ = 0;
  std::vector<std::vector<std::uint8_t>> rows_;
};

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets = {InstructionSet::portable};
  if (best_instruction_set() >= InstructionSet::avx2) sets.push_back(InstructionSet::avx2);
  if (best_instruction_set() == InstructionSet::avx512) sets.push_back(InstructionSet::avx512);
  return sets;
}

class BaselineJpeg : public testing::TestWithParam<InstructionSet> {
 protected:
  /// Decodes a window and compares it.
  void expect_window(const Bytes& bytes, const TestImage& full, const PixelRange& columns,
                     const PixelRange& rows, bool smooth) {
    const Headers headers(bytes);
    ASSERT_TRUE(headers.known());
    ASSERT_TRUE(decoder_.begin(headers.frame(), columns, rows, smooth));
    ASSERT_LE(decoder_.left(), columns.first);
    ASSERT_GE(decoder_.left() + decoder_.width(), columns.end);
    KeptRows kept(rows.first);
    ASSERT_TRUE(kept.decode(decoder_));
    ASSERT_EQ(kept.count(), static_cast<std::size_t>(rows.end - rows.first));
    ASSERT_TRUE(kept.equal(full, columns))
        << "columns " << columns.first << " to " << columns.end << ", rows " << rows.first << " to "
        << rows.end << (smooth ? ", smooth" : ", plain");
  }

  /// The whole image, its corners and middle in windows of one pixel and more, and random windows.
  void expect_windows(const TestImage& image, const JpegForm& form, int by_chance = 6) {
    const Bytes bytes = encode_jpeg(image, form);
    Random random(static_cast<std::uint64_t>(image.width) * 1000 + image.height);
    for (const bool smooth : {true, false}) {
      const TestImage full = decode_jpeg(bytes, smooth);
      const auto try_one = [&](const PixelRange& columns, const PixelRange& rows) {
        if (!HasFatalFailure()) expect_window(bytes, full, columns, rows, smooth);
      };
      const std::int32_t width = image.width, height = image.height;
      try_one({0, width}, {0, height});
      try_one({0, 1}, {0, 1});
      try_one({width - 1, width}, {height - 1, height});
      try_one({width / 2, width / 2 + 1}, {height / 2, height / 2 + 1});
      try_one({width / 2, width}, {0, (height + 1) / 2});
      for (int i = 0; i < by_chance; ++i) {
        const auto range = [&](std::int32_t size) {
          const auto first = static_cast<std::int32_t>(random.below(static_cast<unsigned>(size)));
          const auto more = random.below(static_cast<unsigned>(size - first));
          return PixelRange{first, first + 1 + static_cast<std::int32_t>(more)};
        };
        const PixelRange columns = range(width);
        try_one(columns, range(height));
      }
    }
  }

  BaselineDecoder decoder_{GetParam()};
};

constexpr std::pair<int, int> kSamplings[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};

TestImage make_noise(int width, int height, std::uint64_t seed, bool extreme) {
  TestImage image{width, height, 3, {}};
  Random random(seed);
  for (int i = 0; i < width * height * 3; ++i) {
    const auto value = static_cast<std::uint8_t>(random.below(256));
    image.pixels.push_back(extreme ? (value < 128 ? 0 : 255) : value);
  }
  return image;
}

TEST_P(BaselineJpeg, WindowsEqualLibjpegsPixelsForAllSamplingsAndSizes) {
  for (const auto& [h, v] : kSamplings) {
    for (const auto& [width, height] : {std::pair{1, 1},
                                        {2, 3},
                                        {4, 2},
                                        {5, 5},
                                        {6, 17},
                                        {16, 16},
                                        {17, 15},
                                        {33, 32},
                                        {129, 1},
                                        {1, 130},
                                        {18, 49},
                                        {211, 163}}) {
      SCOPED_TRACE(std::to_string(h) + "x" + std::to_string(v) + ", " + std::to_string(width) +
                   " by " + std::to_string(height));
      expect_windows(make_test_image(width, height), {.horizontal = h, .vertical = v});
    }
  }
}

TEST_P(BaselineJpeg, GreyImagesHaveTheirPixels) {
  for (const auto& [width, height] : {std::pair{1, 1}, {7, 9}, {64, 1}, {97, 83}}) {
    expect_windows(make_test_image(width, height, 1), {});
    expect_windows(make_test_image(width, height, 1), {.restart_interval = 2});
  }
}

TEST_P(BaselineJpeg, AllQualitiesHaveTheirPixels) {
  const TestImage photo = make_test_image(67, 51), noise = make_noise(45, 37, 1, false),
                  extreme = make_noise(45, 37, 2, true);
  for (int quality = 1; quality <= 100; ++quality) {
    SCOPED_TRACE(quality);
    const auto& [h, v] = kSamplings[quality % 4];
    const JpegForm form{
        .quality = quality, .horizontal = h, .vertical = v, .optimised = quality % 3 == 0};
    for (const TestImage* image : {&photo, &noise, &extreme}) expect_windows(*image, form, 1);
  }
}

TEST_P(BaselineJpeg, RestartIntervalsAndOptimisedTablesAreRead) {
  const TestImage image = make_test_image(150, 90);
  for (const int interval : {1, 2, 7, 10, 11, 1000}) {
    for (const auto& [h, v] : kSamplings) {
      for (const bool optimised : {false, true}) {
        expect_windows(
            image,
            {.horizontal = h, .vertical = v, .restart_interval = interval, .optimised = optimised},
            2);
      }
    }
  }
}

TEST_P(BaselineJpeg, FlatImagesAndSingleFrequenciesHaveTheirPixels) {
  expect_windows(make_flat_image(40, 40, 200, 30, 120), {.quality = 95});
  // Waves of one frequency, up to the highest: few coefficients, far apart, including the last of a
  // block.
  for (int period = 2; period <= 16; ++period) {
    TestImage image = make_flat_image(48, 48, 0, 0, 0);
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width * 3; ++x) {
        image.pixels[static_cast<std::size_t>(y * image.width * 3 + x)] =
            (x / 3 * 2 / period + y * 2 / period) % 2 == 0 ? 255 : 0;
      }
    }
    for (const int quality : {20, 75, 100}) {
      expect_windows(image, {.quality = quality, .horizontal = 1, .vertical = 1}, 1);
    }
  }
}

TEST_P(BaselineJpeg, TruncatedDataAreNoticed) {
  const TestImage image = make_test_image(80, 64);
  for (const int interval : {0, 3}) {
    const Bytes bytes = encode_jpeg(image, {.restart_interval = interval});
    const Headers whole(bytes);
    const auto header = bytes.size() - whole.frame().data.size();
    for (std::size_t size = header; size + 2 < bytes.size(); ++size) {
      const Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      const Headers headers(part);
      ASSERT_TRUE(decoder_.begin(headers.frame(), {0, 80}, {0, 64}, true));
      ASSERT_FALSE(KeptRows(0).decode(decoder_)) << size;
    }
  }
}

TEST_P(BaselineJpeg, WhatLiesBelowTheWindowIsNotRead) {
  const TestImage image = make_test_image(160, 320);
  Bytes bytes = encode_jpeg(image);
  const TestImage full = decode_jpeg(bytes);
  bytes.resize(bytes.size() / 2);
  const Headers headers(bytes);
  ASSERT_TRUE(decoder_.begin(headers.frame(), {0, 160}, {10, 90}, true));
  KeptRows kept(10);
  ASSERT_TRUE(kept.decode(decoder_));
  EXPECT_TRUE(kept.equal(full, {0, 160}));
}

std::string name_of(const testing::TestParamInfo<InstructionSet>& info) {
  static constexpr std::array kNames = {"portable", "avx2", "avx512"};
  return kNames[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, BaselineJpeg, testing::ValuesIn(instruction_sets()),
                         name_of);

TEST(JpegFrame, OtherKindsOfImagesAreLeftToLibjpeg) {
  const TestImage rgb = make_test_image(40, 33), inks = make_test_image(40, 33, 4);
  const Bytes others[] = {encode_jpeg(rgb, {.progressive = true}),
                          encode_jpeg(rgb, {.arithmetic = true}),
                          encode_jpeg(rgb, {.separate_scans = true}),
                          encode_jpeg(rgb, {.stored_as_rgb = true}),
                          encode_jpeg(inks),
                          encode_jpeg(inks, {.ycck = true})};
  for (const Bytes& bytes : others) EXPECT_FALSE(Headers(bytes).known());
  BaselineDecoder decoder;
  const Bytes wide = encode_jpeg(rgb, {.horizontal = 4, .vertical = 1});
  const Headers headers(wide);
  EXPECT_FALSE(headers.known() && decoder.begin(headers.frame(), {0, 1}, {0, 1}, true));
}

}  // namespace
}  // namespace penstock::jpeg
