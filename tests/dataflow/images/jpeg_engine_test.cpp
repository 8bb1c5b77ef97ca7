// SPDX-License-Identifier: Apache-2.0
// The jpeg decoder with engine=auto against engine=libjpeg: identical rows of a batch, and the same
// decision about damaged files.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/dataflow/images/decoded_rows.h"
#include "tests/fuzz/mutation.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;
constexpr ImageShape kShape{40, 48, 3};

/// The row; none if the file is refused.
std::optional<Bytes> decode(Decoder& decoder, const Bytes& bytes, std::uint64_t seed) {
  try {
    return decoded_row(decoder, bytes, kShape, seed);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

struct Engines {
  explicit Engines(const std::string& options)
      : own(make_decoder("jpeg:" + options)),
        libjpeg(make_decoder("jpeg:" + options + ",engine=libjpeg")) {}
  std::unique_ptr<Decoder> own, libjpeg;
};

std::vector<Bytes> good_files() {
  std::vector<Bytes> files;
  for (const auto& [h, v] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
    for (const int quality : {15, 75, 96}) {
      const TestImage image = make_test_image(97 + 3 * quality, 143);
      files.push_back(encode_jpeg(image, {.quality = quality, .horizontal = h, .vertical = v}));
      files.push_back(encode_jpeg(image, {.quality = quality,
                                          .horizontal = h,
                                          .vertical = v,
                                          .restart_interval = 5,
                                          .optimised = true}));
    }
  }
  for (int width = 16; width <= 20; ++width) {
    files.push_back(encode_jpeg(make_test_image(width, 31)));
  }
  files.push_back(encode_jpeg(make_test_image(140, 80, 1)));
  files.push_back(encode_jpeg(make_test_image(140, 80), {.progressive = true}));
  return files;
}

TEST(JpegEngine, RowsAreTheSameByEitherEngine) {
  for (const char* options :
       {"decode=region", "decode=full", "upsampling=plain", "resize=nearest", "crop=center"}) {
    Engines engines(options);
    for (const Bytes& file : good_files()) {
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const auto row = decode(*engines.own, file, seed);
        ASSERT_TRUE(row.has_value()) << options;
        ASSERT_EQ(row, decode(*engines.libjpeg, file, seed)) << options << ", seed " << seed;
      }
    }
  }
}

TEST(JpegEngine, DamageGetsTheSameVerdict) {
  const std::vector<Bytes> files = good_files();
  Engines whole("decode=full"), region("decode=region");
  std::size_t refused = 0;
  constexpr std::size_t kFiles = 600;
  for (std::size_t i = 0; i < kFiles; ++i) {
    Random random(7, 0, i);
    Bytes bytes = files[random.below(files.size())];
    if (i % 3 == 0) {
      bytes.resize(random.below(bytes.size()));
    } else {
      // Mostly within the scan.
      Bytes scan(bytes.begin() + 600, bytes.end());
      for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
        mutate(scan, random);
      }
      bytes.resize(600);
      bytes.insert(bytes.end(), scan.begin(), scan.end());
    }
    const auto expected = decode(*whole.libjpeg, bytes, i);
    ASSERT_EQ(decode(*whole.own, bytes, i), expected) << "file " << i;
    refused += expected ? 0 : 1;
    // For a region, libjpeg may read more rows and find damage there.
    if (const auto part = decode(*region.libjpeg, bytes, i); part.has_value()) {
      ASSERT_EQ(decode(*region.own, bytes, i), part) << "file " << i;
    }
  }
  EXPECT_GT(refused, kFiles / 10);
  EXPECT_LT(refused, kFiles * 9 / 10);
}

/// The file without the segments of these markers.
Bytes without(const Bytes& file, std::initializer_list<int> markers) {
  Bytes kept(file.begin(), file.begin() + 2);
  for (std::size_t at = 2;;) {
    const int marker = std::to_integer<int>(file[at + 1]);
    const bool is_scan = marker == 0xDA;
    const std::size_t end = is_scan ? file.size()
                                    : at + 2 + (std::to_integer<std::size_t>(file[at + 2]) << 8) +
                                          std::to_integer<std::size_t>(file[at + 3]);
    if (std::ranges::find(markers, marker) == markers.end()) {
      kept.insert(kept.end(), file.begin() + static_cast<std::ptrdiff_t>(at),
                  file.begin() + static_cast<std::ptrdiff_t>(end));
    }
    if (is_scan) return kept;
    at = end;
  }
}

TEST(JpegEngine, AFilesPixelsDependOnThatFileAlone) {
  constexpr int kQuantisation = 0xDB, kHuffman = 0xC4;
  const auto file = [](unsigned seed, const JpegForm& form) {
    return encode_jpeg(make_test_image(90, 60, 3, seed), form);
  };
  std::vector<Bytes> files = {file(1, {.quality = 75}),
                              file(2, {.quality = 5}),
                              file(3, {.quality = 75, .optimised = true}),
                              file(4, {.quality = 40, .progressive = true}),
                              file(5, {.quality = 60, .separate_scans = true, .optimised = true}),
                              file(6, {.quality = 30, .arithmetic = true}),
                              encode_jpeg(make_test_image(90, 60, 1)),
                              encode_jpeg(make_test_image(90, 60, 4), {.ycck = true})};
  const std::size_t whole = files.size();
  for (std::size_t i = 0; i < whole; ++i) {
    files.push_back(without(files[i], {kHuffman}));
    files.push_back(without(files[i], {kQuantisation}));
    files.push_back(without(files[i], {kQuantisation, kHuffman}));
  }
  for (const std::string options : {"decode=region", "decode=full", "engine=libjpeg"}) {
    std::vector<std::optional<Bytes>> alone;
    for (const Bytes& one : files) {
      alone.push_back(decode(*make_decoder("jpeg:" + options), one, 1));
    }
    EXPECT_TRUE(alone[whole]) << "the standard's Huffman tables decode motion JPEG";
    EXPECT_FALSE(alone[whole + 1]) << "no quantisation is standard";
    const auto decoder = make_decoder("jpeg:" + options);
    for (std::size_t first = 0; first < files.size(); ++first) {
      for (std::size_t second = 0; second < files.size(); ++second) {
        ASSERT_EQ(decode(*decoder, files[first], 1), alone[first]) << options << ' ' << first;
        ASSERT_EQ(decode(*decoder, files[second], 1), alone[second])
            << options << ": file " << second << " after " << first;
      }
    }
  }
}

TEST(JpegEngine, AnUnknownEngineIsRefused) {
  EXPECT_TRUE(says(thrown_by<ConfigError>([] { make_decoder("jpeg:engine=mine"); }),
                   "expected auto, libjpeg or nvjpeg"));
}

}  // namespace
}  // namespace penstock
