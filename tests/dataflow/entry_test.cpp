// SPDX-License-Identifier: Apache-2.0
#include "dataflow/entry.h"

#include <gtest/gtest.h>

#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

struct Plain {
  std::string_view name;
};
struct Aliased {
  std::string_view name, aliases;
};

constexpr Plain kLeft{"left"}, kRight{"right_hand"};
constexpr const Plain* kPlain[] = {&kLeft, &kRight};
constexpr Aliased kCat{"cat", "Felis  kitten"}, kDog{"dog", ""};
constexpr const Aliased* kAliased[] = {&kCat, &kDog};
constexpr AbsentEntry kAbsent[] = {{"unicorn", "extinct"}};

constexpr Table<Plain> kPlainTable{"side", kPlain, {}};
constexpr Table<Aliased> kAliasedTable{"animal", kAliased, kAbsent};

std::string error_of(std::string_view name) {
  return thrown_by<Error>([&] { find_entry(kAliasedTable, name); });
}

TEST(Entry, IsFoundWithoutCaseAndByEitherDash) {
  EXPECT_EQ(&find_entry(kPlainTable, "Right-Hand"), &kRight);
  EXPECT_EQ(names_of(kRight), std::vector<std::string>{"right_hand"});
}

TEST(Entry, AnswersToItsAliases) {
  EXPECT_EQ(&find_entry(kAliasedTable, "felis"), &kCat);
  EXPECT_EQ(match_entry(kAliasedTable, "KITTEN"), &kCat);
  EXPECT_EQ(match_entry(kAliasedTable, ""), nullptr);
  EXPECT_EQ(names_of(kCat), (std::vector<std::string>{"cat", "Felis", "kitten"}));
  EXPECT_EQ(names_of(kDog), std::vector<std::string>{"dog"});
}

TEST(Entry, IsSuggestedByItsAliasesAndListedByItsName) {
  EXPECT_EQ(error_of("kiten"),
            "unknown animal 'kiten'; did you mean 'kitten'?; built here: cat, dog");
}

TEST(Entry, AbsentOnesSayWhy) {
  EXPECT_THROW(find_entry(kAliasedTable, "Unicorn"), Unavailable);
  EXPECT_EQ(error_of("unicorn"), "animal 'unicorn' is known, but extinct; built here: cat, dog");
  EXPECT_EQ(match_entry(kAliasedTable, "unicorn"), nullptr);
}

}  // namespace
}  // namespace penstock
