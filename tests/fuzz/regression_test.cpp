// SPDX-License-Identifier: Apache-2.0
// Every target over its committed inputs, and over mutations of them from a fixed seed. Alone it
// sees contradictions and crashes; with a sanitizer also every stray access.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"
#include "tests/support/text_files.h"

namespace penstock::fuzz {
namespace {

class FuzzRegression : public testing::TestWithParam<TargetEntry> {};

TEST_P(FuzzRegression, GoodInputsAreAcceptedAndMutationsAreAcceptedOrRefused) {
  std::vector<Bytes> seeds;
  std::size_t seed_bytes = 0;
  const auto corpus = std::filesystem::path(PENSTOCK_FUZZ_CORPUS) / GetParam().name;
  for (const auto& [name, text] : files_below(corpus)) {
    SCOPED_TRACE(name);
    const auto bytes = std::as_bytes(std::span(text));
    std::size_t accepted = 0;
    ASSERT_NO_THROW(accepted = use_input(GetParam().use, bytes));
    if (name.starts_with("good")) {
      EXPECT_GT(accepted, 0U);
    }
    seeds.emplace_back(bytes.begin(), bytes.end());
    seed_bytes += bytes.size();
  }
  ASSERT_FALSE(seeds.empty());
  // Long inputs also take long to parse.
  const std::size_t count = std::min<std::size_t>(20'000, 20'000'000 * seeds.size() / seed_bytes);
  std::size_t accepted = 0, number = 0;
  for_each_mutation(seeds, count, [&](const Bytes& input) {
    ++number;
    try {
      accepted += use_input(GetParam().use, input) > 0 ? 1 : 0;
    } catch (const std::exception& error) {
      const std::string file =
          testing::TempDir() + std::string(GetParam().name) + "_" + std::to_string(number);
      std::ofstream(file, std::ios::binary) << as_text(input);
      ADD_FAILURE() << error.what() << "; the input is in " << file;
    }
  });
  EXPECT_GT(accepted, count / 1000) << "hardly any mutation gets behind the first checks";
  EXPECT_LT(accepted, count);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzRegression,
                         testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace penstock::fuzz
