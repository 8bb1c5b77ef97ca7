// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of a good file, from a fixed seed.
#include <gtest/gtest.h>

#include "dataflow/random.h"
#include "tests/fuzz/beton_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kRowsAt = kGoodBeton.rows_at, kDataAt = kGoodBeton.data_at;

TEST(BetonMutation, NothingIsReadOutsideTheFile) {
  const Bytes seed = good_beton();
  EXPECT_EQ(try_beton(seed), 4);
  constexpr std::size_t kFiles = 100'000;
  std::size_t refused = 0, images = 0;
  for (std::size_t i = 0; i < kFiles; ++i) {
    Random random(1, 0, i);
    Bytes bytes = seed;
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      // Most of the file is names and arguments: what is before, between and behind is mutated
      // apart.
      const std::size_t bounds[] = {0, 24, kRowsAt, kDataAt, seed.size()};
      const std::size_t part = bytes.size() == seed.size() ? random.below(4) : 0;
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(bounds[part]);
      const auto end =
          bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bounds[part + 1], bytes.size()));
      Bytes piece(begin, end);
      mutate(piece, random);
      const auto at = bytes.erase(begin, end);
      bytes.insert(at, piece.begin(), piece.end());
    }
    const Bytes exact(bytes.begin(), bytes.end());
    const std::int64_t found = try_beton(exact);
    refused += found < 0 ? 1 : 0;
    images += found > 0 ? static_cast<std::size_t>(found) : 0;
  }
  EXPECT_GT(refused, kFiles / 10);
  EXPECT_LT(refused, kFiles * 9 / 10);
  EXPECT_GT(images, kFiles / 10);
}

}  // namespace
}  // namespace penstock
