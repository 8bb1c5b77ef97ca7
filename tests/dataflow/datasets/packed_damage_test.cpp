// SPDX-License-Identifier: Apache-2.0
// Sources over packed files with random damage: every sample is either returned or reported as
// damaged, or the file is refused. There are never more samples than in the undamaged file.
#include <ostream>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/fuzz/mutation.h"
#include "tests/support/packed_images.h"
#include "tests/support/text_bytes.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

struct PackedKind {
  const char *pack, *source;
  friend std::ostream& operator<<(std::ostream& out, const PackedKind& kind) {
    return out << kind.pack << ", read as " << kind.source;
  }
};

class PackedDamageTest : public PackedImagesTest, public testing::WithParamInterface<PackedKind> {};

TEST_P(PackedDamageTest, CostsSamplesAndNothingElse) {
  const auto& [how_to_pack, source] = GetParam();
  pack(how_to_pack);
  const std::filesystem::path file = *std::filesystem::directory_iterator(folder_ / "packed");
  const std::string whole = read_text(file);
  ASSERT_EQ(read(*open(source)), samples_);
  std::size_t refused = 0, damaged = 0, unharmed = 0;
  constexpr std::size_t kFiles = 150;
  for (std::size_t i = 0; i < kFiles; ++i) {
    Random random(3, 0, i);
    std::vector<std::byte> bytes = bytes_of_text(whole);
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) mutate(bytes, random);
    write_text(file, text_of(bytes));
    std::vector<std::string> errors;
    try {
      const std::size_t given = read(*open(source), &errors).size();
      EXPECT_GT(given + errors.size(), 0U);
      EXPECT_LE(given, 2 * samples_.size()) << "parts of the file may be there twice";
      for (const std::string& error : errors) {
        EXPECT_TRUE(says(error, file.filename().string() + "' at byte "));
      }
      ++(errors.empty() ? unharmed : damaged);
    } catch (const ConfigError& error) {
      EXPECT_TRUE(says(std::string(error.what()), "packed")) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(damaged, kFiles / 10);
  EXPECT_EQ(damaged + refused + unharmed, kFiles);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, PackedDamageTest,
    testing::Values(PackedKind{"tfrecord", "tfrecord"},
                    PackedKind{"tfrecord compress=gzip", "tfrecord:max_record=1MiB"},
                    PackedKind{"tfrecord compress=zlib", "tfrecord:crc=false,max_record=1MiB"},
                    PackedKind{"webdataset format=pax", "webdataset"},
                    PackedKind{"webdataset compress=gzip", "webdataset:max_record=1MiB"}));

}  // namespace
}  // namespace penstock
