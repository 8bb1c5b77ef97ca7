// SPDX-License-Identifier: Apache-2.0
// What every option of a feeder, device, update and optimizer keeps: its documented values run, and
// every output format shows the run. A value that a feeder refuses here, because it needs a loader,
// other data or another producer, is refused whatever the format is. A new component is tested as
// soon as it is entered.
#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bench/record/saved_results.h"
#include "bench/report/report.h"
#include "feeders/feeder.h"
#include "tests/support/entry_names.h"
#include "tests/support/feeder_surroundings.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"
#include "trainer/backend.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// An option that has a list of values, or is true or false.
struct Case {
  const char* flag = "";
  std::string_view component;
  const OptionSpec* option = nullptr;
  const FeederEntry* feeder = nullptr;  ///< null: another component
  std::vector<std::string> values{};

  friend void PrintTo(const Case& shown, std::ostream* out) {
    *out << shown.flag << shown.component << ':' << shown.option->name;
  }
};

template <typename Entry>
void add_cases(const char* flag, const Table<Entry>& table, std::vector<Case>& cases) {
  for (const Entry* entry : table.entries) {
    for (const OptionSpec& option : entry->options) {
      Case one{flag, entry->name, &option};
      if constexpr (std::is_same_v<Entry, FeederEntry>) one.feeder = entry;
      for (const OptionValue& value : option.values) one.values.emplace_back(value.name);
      if (option.fallback == "true" || option.fallback == "false") one.values = {"true", "false"};
      if (!one.values.empty()) cases.push_back(one);
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_cases("--fake-location=", feeder_table(), cases);
  add_cases("--device=", backend_table(), cases);
  add_cases("--variable-update=", update_table(), cases);
  add_cases("--optimizer=", optimizer_table(), cases);
  return cases;
}

class OptionValues : public ::testing::TestWithParam<Case> {
 protected:
  /// A short run of two devices with that value; `text` has the component and its first options.
  std::vector<std::string> command(const std::string& text, const std::string& value) const {
    const Case& tested = GetParam();
    return {PENSTOCK_PROGRAM,
            "run",
            "--fake-location=cpu",
            "--device=emulated:img_per_s=200",
            "--model=trivial",
            "--batch-size=2",
            "--num-gpus=2",
            "--num-batches=20",
            "--num-warmup-batches=1",
            tested.feeder != nullptr ? "--timeout=4s" : "--timeout=30s",
            tested.flag + text + (text.find(':') == std::string::npos ? ":" : ",") +
                std::string(tested.option->name) + "=" + value};
  }
  static ChildExit end_of(std::vector<std::string> words, const std::string& more) {
    words.push_back(more);
    return penstock::exit_of(std::move(words));
  }
  TempFolder folder_;
};

TEST_P(OptionValues, RunAndAreShownInEveryFormat) {
  const Case& tested = GetParam();
  std::string text(tested.component);
  std::optional<FeederSurroundings> around;
  std::vector<std::string> more;
  if (tested.feeder != nullptr) {
    around.emplace(*tested.feeder, 2, PENSTOCK_PROGRAM);
    text = around->text();
    if (tested.feeder->reads_files) more.push_back("--data-dir=" + around->directory().string());
  }
  for (const std::string& value : tested.values) {
    SCOPED_TRACE(value);
    Words words = joined(command(text, value), more);
    const std::string out = (folder_.path() / (value + ".json")).string();
    const ChildExit table = end_of(words, "--out=" + out);
    if (table.code != 0) {
      const ChildExit json = end_of(words, "--json");
      EXPECT_EQ(table.code, json.code) << "the format decides: " << table.last_words;
      const bool may_need_more = tested.feeder != nullptr || tested.option->values.empty();
      EXPECT_TRUE(may_need_more || table.code == 3) << table.last_words;
      continue;
    }
    EXPECT_TRUE(says(table.output, "total images/sec: ")) << table.output;
    const SweepResult saved = read_saved_results(out);
    for (const report::ReportEntry* report : report::report_table().entries) {
      std::ostringstream shown;
      report->write(saved, {}, shown);
      EXPECT_FALSE(shown.str().empty()) << report->name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptionValues, ::testing::ValuesIn(all_cases()), [](const auto& test) {
  std::ostringstream name;
  PrintTo(test.param, &name);
  return test_name(name.str().substr(2));
});

}  // namespace
}  // namespace penstock
