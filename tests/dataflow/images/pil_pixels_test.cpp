// SPDX-License-Identifier: Apache-2.0
// The jpeg decoder against PIL: the same crops of 500 files, resized to 224 x 224. libjpeg and PIL
// wrote the files, in all their forms.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/images/crop.h"
#include "tests/dataflow/images/decoded_rows.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/pil_rows.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;
using Json = nlohmann::json;
constexpr std::uint64_t kFiles = 500, kBlocks = 10;

std::vector<std::uint8_t> noise(std::size_t count, Random& random) {
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
  return bytes;
}

/// An EXIF segment with a rotation by 90 degrees, followed by random bytes.
std::vector<std::uint8_t> exif(Random& random) {
  std::vector<std::uint8_t> bytes = {'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1,
                                     1,   18,  0,   3,   0, 0, 0,   1,   0, 6,  0, 0, 0, 0, 0, 0};
  const std::vector<std::uint8_t> rest = noise(random.below(3000), random);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

/// Adds padded segments after the file's first marker, and garbage after its end.
void add_segments(Bytes& file, Random& random) {
  constexpr std::uint8_t kExif = 0xE1, kComment = 0xFE;
  Bytes segments;
  const auto add = [&](std::uint8_t marker, const std::vector<std::uint8_t>& data) {
    segments.resize(segments.size() + 1 + random.below(4), std::byte{0xFF});
    segments.push_back(static_cast<std::byte>(marker));
    segments.push_back(static_cast<std::byte>((data.size() + 2) >> 8));
    segments.push_back(static_cast<std::byte>((data.size() + 2) & 0xFF));
    const auto bytes = std::as_bytes(std::span(data));
    segments.insert(segments.end(), bytes.begin(), bytes.end());
  };
  add(kExif, exif(random));
  add(kComment, noise(random.below(300), random));
  for (const std::uint8_t application : std::array<std::uint8_t, 3>{0xE2, 0xE5, 0xED}) {
    add(application, noise(random.below(60'000), random));
  }
  file.insert(file.begin() + 2, segments.begin(), segments.end());
  const std::vector<std::uint8_t> rubbish = noise(random.below(5000), random);
  const auto bytes = std::as_bytes(std::span(rubbish));
  file.insert(file.end(), bytes.begin(), bytes.end());
}

/// Sides of one pixel, less than a block, odd, long and narrow, whole blocks, and photograph sizes,
/// some so large that libjpeg could shrink their crops.
ImageSize draw_size(std::uint64_t kind, Random& random) {
  const auto side = [&](int low, int high) {
    return low + static_cast<std::int32_t>(random.below(static_cast<unsigned>(high - low + 1)));
  };
  switch (kind) {
    case 0:
      return {1, side(1, 300)};
    case 1:
      return {side(1, 300), 1};
    case 2:
      return {side(2, 19), side(2, 19)};
    case 3:
      return {2 * side(10, 160) + 1, 2 * side(10, 160) + 1};
    case 4:
      return {side(300, 900), side(9, 70)};
    case 5:
      return {side(9, 70), side(300, 900)};
    case 6:
      return {16 * side(1, 25), 16 * side(1, 25)};
    case 7:
      return {side(450, 1000), side(450, 800)};
    default:
      return {side(100, 640), side(100, 440)};
  }
}

/// Writes a file with libjpeg.
Bytes write_by_libjpeg(std::uint64_t number, const ImageSize& size, Random& random) {
  constexpr std::pair<int, int> kSamplings[] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}};
  const auto& [h, v] = kSamplings[number % std::size(kSamplings)];
  JpegForm form{.quality = static_cast<int>(1 + random.below(100)), .horizontal = h, .vertical = v};
  int channels = 3;
  switch (random.below(12)) {
    case 0:
      channels = 1;
      break;
    case 1:
      channels = 4;
      form.adobe_marker = random.below(2) == 0;
      break;
    case 2:
      channels = 4;
      form.ycck = true;
      break;
    case 3:
      form.stored_as_rgb = true;
      break;
    case 4:
      form.arithmetic = true;
      break;
    case 5:
      form.separate_scans = true;
      break;
    default:
      form.progressive = random.below(4) == 0;
  }
  if (random.below(2) == 0) form.restart_interval = static_cast<int>(1 + random.below(20));
  form.optimised = !form.arithmetic && random.below(2) == 0;
  Bytes file = encode_jpeg(make_test_image(size.width, size.height, channels, number), form);
  if (random.below(2) == 0) add_segments(file, random);
  return file;
}

/// The order to PIL for a file, with pixels that are written here.
Json write_by_pil(std::uint64_t number, const ImageSize& size, const std::filesystem::path& path,
                  Random& random) {
  const std::uint64_t kind = random.below(8);
  const int channels = kind == 0 ? 1 : kind == 1 ? 4 : 3;
  const TestImage image = make_test_image(size.width, size.height, channels, number);
  std::ofstream(path.string() + ".pixels", std::ios::binary)
      .write(reinterpret_cast<const char*>(image.pixels.data()),
             static_cast<std::streamsize>(image.pixels.size()));
  Json save{{"format", "JPEG"},
            {"quality", 1 + random.below(100)},
            {"subsampling", random.below(3)},
            {"progressive", random.below(3) == 0},
            {"optimize", random.below(2) == 0}};
  if (random.below(2) == 0) save["exif"] = exif(random);
  if (random.below(3) == 0) save["icc_profile"] = noise(1 + random.below(70'000), random);
  if (random.below(3) == 0) save["comment"] = noise(random.below(100), random);
  return {{"mode", channels == 1   ? "L"
                   : channels == 4 ? "CMYK"
                                   : "RGB"},
          {"size", {size.width, size.height}},
          {"save", save}};
}

/// A crop, by the seed that the decoder draws it from; without a seed, the whole image.
struct CropBox {
  std::optional<std::uint64_t> seed;
  std::array<std::int32_t, 4> box{};  // left, top, right, bottom
};

/// The first random crop that touches this edge of the image and, if possible, no other edge.
CropBox crop_at(std::uint64_t edge, const ImageSize& size) {
  CropBox best;
  int fewest = 5;
  for (std::uint64_t seed = 0; seed < 400 && fewest > 1; ++seed) {
    Random random(seed);
    const Region region = choose_region(Crop::random, size, {}, random);
    const std::array<std::int32_t, 4> box = {region.columns.low, region.rows.low,
                                             region.columns.high, region.rows.high};
    const std::array<bool, 4> touched = {box[0] == 0, box[1] == 0, box[2] == size.width,
                                         box[3] == size.height};
    const auto edges = static_cast<int>(std::ranges::count(touched, true));
    if (!touched[edge % 4] || edges >= fewest) continue;
    fewest = edges;
    best = {seed, box};
  }
  return best.seed ? best : CropBox{std::nullopt, {0, 0, size.width, size.height}};
}

/// Every way to decode: this project's decoder or libjpeg, the region or the whole image.
class Decoders {
 public:
  explicit Decoders(const std::string& crop) {
    for (const char* engine : {"auto", "libjpeg"}) {
      for (const char* decode : {"region", "full"}) {
        const std::string text = "jpeg:flip=false,shrink=false,crop=" + crop + ",engine=" + engine +
                                 ",decode=" + decode + ",upsampling=fancy";
        decoders_.emplace_back(text, make_decoder(text));
      }
    }
  }

  template <typename Use>
  void for_each(const Bytes& file, std::uint64_t seed, const Use& use) {
    for (auto& [name, decoder] : decoders_) {
      Bytes row(kPilShape.elements());
      std::string problem;
      try {
        row = decoded_row(*decoder, file, kPilShape, seed);
      } catch (const DataError& error) {
        problem = error.what();
      }
      use(name, row, problem);
    }
  }

 private:
  std::vector<std::pair<std::string, std::unique_ptr<Decoder>>> decoders_;
};

class PilPixels : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    if (!python_has("PIL")) GTEST_SKIP() << "python3-pil is not installed";
  }
};

TEST_P(PilPixels, CropsHaveThePixelsThatPilGives) {
  const TempFolder folder;
  struct File {
    std::string name;
    std::array<CropBox, 2> crops;
  };
  std::vector<File> files;
  Json jobs = Json::array();
  for (std::uint64_t number = GetParam(); number < kFiles; number += kBlocks) {
    Random random(17, 0, number);
    const ImageSize size = draw_size(random.below(10), random);
    File file{std::to_string(number) + ".JPEG", {crop_at(number / kBlocks, size)}};
    file.crops[1].box = {0, 0, size.width, size.height};
    const std::filesystem::path path = folder / file.name;
    Json job = Json::object();
    if (random.below(2) == 0) {
      folder.write(file.name, write_by_libjpeg(number, size, random));
    } else {
      job = write_by_pil(number, size, path, random);
    }
    job["file"] = file.name;
    for (const CropBox& crop : file.crops) job["boxes"].push_back(crop.box);
    jobs.push_back(job);
    files.push_back(file);
  }
  const PilRows rows = run_pil(folder, jobs);
  ASSERT_EQ(rows.refused, "");
  ASSERT_EQ(rows.count(), 2 * files.size());
  Decoders random_crops("random"), whole("full");
  std::size_t row = 0;
  for (const File& file : files) {
    const Bytes bytes = read_file(folder / file.name);
    for (const CropBox& crop : file.crops) {
      (crop.seed ? random_crops : whole)
          .for_each(bytes, crop.seed.value_or(0),
                    [&](const std::string& name, const Bytes& ours, const std::string& problem) {
                      EXPECT_EQ(problem, "");
                      EXPECT_TRUE(close(ours, rows.row(row)))
                          << file.name << ", " << name << ", box " << Json(crop.box);
                    });
      ++row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PilPixels, testing::Range<std::uint64_t>(0, kBlocks),
                         [](const auto& block) { return "Block" + std::to_string(block.param); });

class PilOddities : public PilPixels {};

/// Whole files, truncated files, truncated files with an end marker, and files with trailing
/// garbage.
TEST_F(PilOddities, TruncatedTailsGiveTheWholeFilesPixelsOrAreRefused) {
  const TempFolder folder;
  const TestImage image = make_test_image(150, 120);
  const Bytes whole[] = {encode_jpeg(image), encode_jpeg(image, {.progressive = true}),
                         encode_jpeg(image, {.restart_interval = 2, .optimised = true})};
  struct Cut {
    std::string name;
    std::size_t of, missing;
  };
  std::vector<Cut> cuts;
  Json jobs = Json::array();
  const std::string_view tails[] = {"", "\xFF\xD9", "rubbish"};
  for (std::size_t of = 0; of < std::size(whole); ++of) {
    for (const std::size_t missing : {0UL, 1UL, 2UL, 3UL, 10UL, 300UL, whole[of].size() / 2}) {
      for (const std::string_view tail : tails) {
        if (missing > 2 && tail == "rubbish") continue;  // indistinguishable from data
        Bytes bytes(whole[of].begin(), whole[of].end() - static_cast<std::ptrdiff_t>(missing));
        const auto end = std::as_bytes(std::span(tail));
        bytes.insert(bytes.end(), end.begin(), end.end());
        cuts.push_back({std::to_string(cuts.size()) + ".JPEG", of, missing});
        folder.write(cuts.back().name, bytes);
        jobs.push_back({{"file", cuts.back().name}, {"boxes", {{0, 0, 150, 120}}}});
      }
    }
  }
  const PilRows rows = run_pil(folder, jobs);
  std::size_t next = 0, decoded = 0;
  Decoders decoders("full");
  std::span<const std::byte> expected;
  for (const Cut& cut : cuts) {
    const bool by_pil = rows.refused.find(cut.name + " ") != 0 &&
                        rows.refused.find("\n" + cut.name + " ") == std::string::npos;
    const std::size_t row = next;
    next += by_pil ? 1 : 0;
    if (&cut == cuts.data() || (&cut)[-1].of != cut.of) expected = rows.row(row);  // the whole file
    decoders.for_each(
        read_file(folder / cut.name), 0,
        [&](const std::string& name, const Bytes& ours, const std::string& problem) {
          SCOPED_TRACE(cut.name + ", " + std::to_string(cut.missing) + " bytes missing, " + name);
          if (problem.empty()) {
            ++decoded;
            EXPECT_TRUE(close(ours, expected));
          } else {
            EXPECT_TRUE(says(problem, "some/file.JPEG"));
            EXPECT_GT(cut.missing, 0U) << problem;
          }
        });
  }
  EXPECT_EQ(next, rows.count());
  EXPECT_GE(decoded, 3U * 3 * 4);
}

TEST_F(PilOddities, PngImagesHavePilsPixelsWhateverTheirNames) {
  const TempFolder folder;
  const std::pair<std::string, int> kModes[] = {{"RGB", 3}, {"L", 1}, {"RGBA", 4}, {"LA", 2}};
  Json jobs = Json::array();
  for (const auto& [mode, channels] : kModes) {
    const TestImage image = make_test_image(60, 40 * channels, 1);
    const auto bytes = std::as_bytes(std::span(image.pixels));
    folder.write(mode + ".JPEG.pixels", Bytes(bytes.begin(), bytes.end()));
    jobs.push_back({{"file", mode + ".JPEG"},
                    {"mode", mode},
                    {"size", {60, 40}},
                    {"save", {{"format", "PNG"}}},
                    {"boxes", {{0, 0, 60, 40}}}});
  }
  const PilRows rows = run_pil(folder, jobs);
  ASSERT_EQ(rows.count(), std::size(kModes)) << rows.refused;
  const auto decoder = make_decoder("jpeg:crop=full,flip=false");
  for (std::size_t i = 0; i < std::size(kModes); ++i) {
    Bytes file = read_file(folder / (kModes[i].first + ".JPEG"));
    const auto row = [&] { return decoded_row(*decoder, file, kPilShape); };
    EXPECT_TRUE(close(row(), rows.row(i))) << kModes[i].first;
    file.resize(file.size() / 2);
    EXPECT_TRUE(says(thrown_by<DataError>(row), "libpng: ")) << kModes[i].first;
  }
}

TEST_F(PilOddities, WhatPilRefusesOrIsNoImageIsRefusedByName) {
  const TempFolder folder;
  const TestImage image = make_test_image(60, 40);
  const auto* const png = reinterpret_cast<const std::byte*>("\x89PNG\r\n and so on");
  folder.write("png.JPEG", Bytes(png, png + 16));
  Bytes huge = encode_jpeg(image);
  for (std::size_t i = 0; i + 8 < huge.size(); ++i) {  // the frame's header: 20,000 x 20,000
    if (huge[i] != std::byte{0xFF} || huge[i + 1] != std::byte{0xC0}) continue;
    for (std::size_t k = 5; k < 9; ++k) huge[i + k] = std::byte{0x4E};
    break;
  }
  folder.write("huge.JPEG", huge);
  const Json box = {{0, 0, 60, 40}};
  const Json jobs = {{{"file", "png.JPEG"}, {"boxes", box}},
                     {{"file", "huge.JPEG"}, {"boxes", box}}};
  const PilRows rows = run_pil(folder, jobs);
  EXPECT_EQ(rows.count(), 0U);
  EXPECT_TRUE(says(rows.refused, "decompression bomb"));
  Decoders decoders("random");
  for (const auto& [name, reason] : {std::pair{"png.JPEG", "it looks like a PNG image"},
                                     {"huge.JPEG", "20046x20046 pixels, more than max_pixels"}}) {
    decoders.for_each(read_file(folder / name), 1,
                      [&](const std::string&, const Bytes&, const std::string& problem) {
                        EXPECT_TRUE(says(problem, "some/file.JPEG"));
                        EXPECT_TRUE(says(problem, reason));
                      });
  }
}

}  // namespace
}  // namespace penstock
