// SPDX-License-Identifier: Apache-2.0
// Comparisons of made-up results: verdicts and refusals.
#include "bench/record/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/config/comparable.h"
#include "bench/statistics/unpaired.h"
#include "dataflow/error.h"
#include "tests/bench/record/sweep_rows.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// A row with one repetition per rate.
Row row_at(const std::string& feeder, const std::vector<double>& rates) {
  Row row = make_row(feeder, feeder == "gpu");
  std::int32_t round = 0;
  for (const double rate : rates) add_repetition(row, round++, make_result(Status::ok, rate, rate));
  return row;
}

SweepResult sweep_of_rows(std::vector<Row> rows) {
  SweepResult sweep;
  sweep.environment.version = "1";
  sweep.environment.kernel = "Linux 6";
  std::vector<RunConfig> configurations;
  for (const Row& row : rows) configurations.push_back(row.config);
  sweep.varied = varied_keys(configurations);
  sweep.rows = std::move(rows);
  summarise(sweep);
  return sweep;
}

const std::vector<double> kSteady = {1000, 1001, 999, 1000.5, 999.5};

std::vector<double> times(std::vector<double> rates, double factor) {
  for (double& rate : rates) rate *= factor;
  return rates;
}

SweepResult steady(double factor = 1) {
  return sweep_of_rows({row_at("gpu", kSteady), row_at("queue", times(kSteady, 0.5 * factor))});
}

TEST(Compare, CallsASlowerRowARegression) {
  const Comparison comparison = compare(steady(), steady(0.9), {});
  ASSERT_EQ(comparison.rows.size(), 2U);
  EXPECT_EQ(comparison.rows[0].verdict, statistics::Verdict::equal);
  EXPECT_EQ(comparison.rows[1].verdict, statistics::Verdict::slower);
  EXPECT_NEAR(comparison.rows[1].change_percent.value, -10, 1e-9);
  EXPECT_LT(comparison.rows[1].change_percent.low, -10);
  EXPECT_GT(comparison.rows[1].change_percent.high, -10);
  EXPECT_EQ(exit_code_of(comparison), 1);
}

TEST(Compare, CallsAFasterRowAndAnEqualOneWell) {
  const Comparison comparison = compare(steady(), steady(1.1), {});
  EXPECT_EQ(comparison.rows[1].verdict, statistics::Verdict::faster);
  EXPECT_EQ(exit_code_of(comparison), 0);
  EXPECT_TRUE(comparison.settings.empty());
  EXPECT_TRUE(comparison.environment.empty());
}

TEST(Compare, AChangeWithinTheMarginIsEqual) {
  EXPECT_EQ(compare(steady(), steady(0.97), {.margin = 0.05}).rows[1].verdict,
            statistics::Verdict::equal);
  EXPECT_EQ(compare(steady(), steady(0.97), {.margin = 0.01}).rows[1].verdict,
            statistics::Verdict::slower);
}

TEST(Compare, NoisyOrFewRepetitionsDecideNothingAndSayWhatWould) {
  const std::vector<double> noisy = {400, 650, 520, 480, 610};
  const SweepResult a = sweep_of_rows({row_at("queue", noisy)});
  const SweepResult b = sweep_of_rows({row_at("queue", times(noisy, 0.95))});
  const Comparison wide = compare(a, b, {});
  EXPECT_EQ(wide.rows[0].verdict, statistics::Verdict::undecided);
  EXPECT_TRUE(says(wide.rows[0].reason, "repetitions each would"));
  EXPECT_EQ(exit_code_of(wide), 7);
  const SweepResult one = sweep_of_rows({row_at("queue", {500})});
  const Comparison few = compare(one, one, {});
  EXPECT_EQ(few.rows[0].verdict, statistics::Verdict::undecided);
  EXPECT_TRUE(says(few.rows[0].reason, "at least 3 each"));
  EXPECT_TRUE(std::isinf(few.rows[0].change_percent.high));
}

TEST(Compare, RowsThatDrainOrFailAreUndecided) {
  SweepResult after = steady();
  for (Repetition& repetition : after.rows[1].repetitions) {
    repetition.result.status = Status::draining;
  }
  summarise(after);
  const Comparison comparison = compare(steady(), after, {});
  EXPECT_EQ(comparison.rows[1].verdict, statistics::Verdict::undecided);
  EXPECT_TRUE(says(comparison.rows[1].reason, "draining after"));
}

TEST(Compare, RefusesOtherWorkloadsByNamingWhatDiffers) {
  const auto differ = [](const std::string& key, const std::string& value) {
    SweepResult after = steady();
    for (Row& row : after.rows) find_config_key(key).set(row.config, value);
    return compare(steady(), after, {});
  };
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"model", "vgg16"},
                                                        {"batch_size", "17"},
                                                        {"image_size", "99"},
                                                        {"precision", "fp16"},
                                                        {"num_gpus", "3"},
                                                        {"device", "emulated:img_per_s=7"},
                                                        {"forward_only", "true"}}) {
    const Comparison comparison = differ(key, value);
    EXPECT_TRUE(mentions(comparison.obstacles, key + ": ")) << key;
    EXPECT_TRUE(comparison.rows.empty()) << key;
    EXPECT_EQ(exit_code_of(comparison), 7) << key;
  }
  const Comparison tuned = differ("prefetch", "9");
  EXPECT_EQ(tuned.settings, std::vector<std::string>{"prefetch: 3 -> 9"});
  EXPECT_EQ(exit_code_of(tuned), 0);
}

TEST(Compare, RefusesImagesOfAnotherQuality) {
  const SweepResult fancy = sweep_of_rows({row_at("queue", kSteady)});
  const SweepResult plain = sweep_of_rows({row_at("queue:upsampling=plain", kSteady)});
  EXPECT_TRUE(mentions(compare(fancy, plain, {}).obstacles, "upsampling=plain"));
  const CompareOptions allowing{.allowed = {"fake_location"}};
  EXPECT_EQ(exit_code_of(compare(fancy, plain, allowing)), 0);
  const SweepResult here = sweep_of_rows({row_at("zmq-consume:hwm=2", kSteady)});
  const SweepResult there = sweep_of_rows({row_at("zmq-consume:hwm=8", kSteady)});
  EXPECT_TRUE(compare(here, there, {}).obstacles.empty()) << "the same data on another way";
}

TEST(Compare, RefusesImagesOfAnotherSize) {
  SweepResult small = sweep_of_rows({row_at("queue", kSteady)}), large = small;
  const auto set_bytes = [](SweepResult& sweep, std::int64_t bytes_per_image) {
    for (Repetition& repetition : sweep.rows[0].repetitions) {
      StageUse stage;
      stage.name = "decode";
      stage.images = 2000;
      stage.bytes = 2000 * bytes_per_image;
      repetition.result.stages = {stage};
    }
  };
  set_bytes(small, 36'500);
  set_bytes(large, 110'000);
  EXPECT_TRUE(mentions(compare(small, large, {}).obstacles, "36.5 kB each"));
  set_bytes(large, 37'000);
  EXPECT_TRUE(compare(small, large, {}).obstacles.empty());
}

TEST(Compare, SaysWhatElseChanged) {
  SweepResult after = steady();
  after.environment.kernel = "Linux 7";
  after.environment.date = "another day";
  after.rows.push_back(row_at("cpu", kSteady));
  SweepResult before = steady();
  before.environment.libraries["libtcmalloc"] = "4";
  before.rows.push_back(row_at("host", kSteady));
  const Comparison comparison = compare(before, after, {});
  EXPECT_EQ(comparison.environment, (std::vector<std::string>{"kernel: Linux 6 -> Linux 7",
                                                              "libraries libtcmalloc: 4 -> none"}));
  EXPECT_EQ(comparison.unmatched,
            (std::vector<std::string>{"only after: cpu", "only before: host"}));
  EXPECT_EQ(comparison.rows.size(), 2U);
}

TEST(Compare, RowsMatchThatWereMeasuredLongerOrShorter) {
  const auto lasting = [](const char* gpu_steps, const char* queue_steps) {
    std::vector<Row> rows = {row_at("gpu", kSteady), row_at("queue", kSteady)};
    find_config_key("num_batches").set(rows[0].config, gpu_steps);
    find_config_key("num_batches").set(rows[1].config, queue_steps);
    return sweep_of_rows(rows);
  };
  const Comparison comparison = compare(lasting("63", "252"), lasting("48", "43"), {});
  EXPECT_EQ(comparison.rows.size(), 2U);
  EXPECT_TRUE(comparison.unmatched.empty());
  EXPECT_TRUE(mentions(comparison.settings, "num_batches: 252 -> 43"));
}

TEST(Compare, WithoutACommonConfigurationThereIsNothingToCompare) {
  const SweepResult a = sweep_of_rows({row_at("gpu", kSteady), row_at("host", kSteady)});
  const SweepResult b = sweep_of_rows({row_at("cpu", kSteady), row_at("queue", kSteady)});
  const Comparison comparison = compare(a, b, {});
  EXPECT_TRUE(mentions(comparison.obstacles, "no configuration is in both"));
  EXPECT_TRUE(mentions(comparison.obstacles, "fake_location: gpu, host -> cpu, queue"));
  EXPECT_EQ(exit_code_of(comparison), 7);
}

TEST(Compare, TwoThatShareTheirCeilingAloneAreNotComparable) {
  const SweepResult a = sweep_of_rows({row_at("gpu", kSteady), row_at("queue", kSteady)});
  const SweepResult b =
      sweep_of_rows({row_at("gpu", kSteady), row_at("queue:decode=full", kSteady)});
  const Comparison comparison = compare(a, b, {});
  EXPECT_TRUE(mentions(comparison.obstacles, "no configuration is in both but the ceiling"));
  EXPECT_TRUE(mentions(comparison.obstacles, "--match KEY=A:B"));
  EXPECT_EQ(exit_code_of(comparison), 7);
  const SweepResult ceiling = sweep_of_rows({row_at("gpu", kSteady)});
  EXPECT_EQ(exit_code_of(compare(ceiling, ceiling, {})), 0) << "nothing else was measured";
}

TEST(Compare, RenamedRowsArePaired) {
  const SweepResult a =
      sweep_of_rows({row_at("gpu", kSteady), row_at("queue:prefer=a:b", times(kSteady, 0.5))});
  const SweepResult b =
      sweep_of_rows({row_at("gpu", kSteady), row_at("queue:decode=full", times(kSteady, 0.4))});
  const CompareOptions renamed{.renamed = "fake-location=queue:prefer=a:b:queue:decode=full"};
  const Comparison comparison = compare(a, b, renamed);
  ASSERT_EQ(comparison.rows.size(), 2U);
  EXPECT_EQ(comparison.rows[1].verdict, statistics::Verdict::slower);
  EXPECT_TRUE(
      mentions(comparison.settings, "fake_location: queue:prefer=a:b -> queue:decode=full"));
  EXPECT_TRUE(comparison.unmatched.empty());
  EXPECT_EQ(exit_code_of(comparison), 1);
  for (const char* wrong : {"fake_location=queue:cpu", "fake_location", "fake_location=queue"}) {
    EXPECT_THROW(compare(a, b, {.renamed = wrong}), ConfigError) << wrong;
  }
}

TEST(Compare, MarginAndNamesAreChecked) {
  EXPECT_EQ(parse_margin("2.5"), 0.025);
  EXPECT_THROW(parse_margin("-1"), ConfigError);
  EXPECT_EQ(parse_allowed("data-dir,model"), (std::vector<std::string>{"data_dir", "model"}));
  EXPECT_THROW(parse_allowed("modle"), ConfigError);
}

std::string written(const Comparison& comparison, const char* format) {
  std::ostringstream text;
  write_comparison(comparison, "a.json", "b.json", format, text);
  return text.str();
}

TEST(CompareText, IsWrittenForPeopleAndPrograms) {
  const Comparison comparison = compare(steady(), steady(0.9), {});
  const std::string text = written(comparison, "text");
  EXPECT_TRUE(says(text, "queue          500.0         450.0        -10.0 [-10.1, -9.9]"));
  EXPECT_TRUE(says(written(comparison, "markdown"), "| slower |"));
  const auto json = nlohmann::json::parse(written(comparison, "json"));
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["rows"][1]["verdict"], "slower");
  EXPECT_THROW(written(comparison, "csv"), ConfigError);
}

TEST(CompareText, JsonOfUnknownBoundsIsStillJson) {
  const SweepResult one = sweep_of_rows({row_at("queue", {500})});
  const auto json = nlohmann::json::parse(written(compare(one, one, {}), "json"));
  EXPECT_TRUE(json["rows"][0]["change_percent_high"].is_null());
}

// ---- statistics ---------------------------------------------------------------

TEST(UnpairedRatio, IsWelchsIntervalOfLogarithms) {
  // The mean difference -+ t sqrt(sum of variances of means), exponentiated. The t for 6.51 degrees
  // of freedom comes from integrating its density by Simpson's rule in 20000 parts, and bisection.
  const std::vector<double> a = {10, 11, 9.5, 10.5}, b = {12, 12.5, 11, 13, 12.2};
  const statistics::Estimate ratio = statistics::unpaired_ratio(a, b);
  EXPECT_NEAR(ratio.value, 1.184352628007, 1e-9);
  EXPECT_NEAR(ratio.low, 1.070702368040, 1e-9);
  EXPECT_NEAR(ratio.high, 1.310066353953, 1e-9);
  EXPECT_EQ(ratio.samples, 4U);
}

TEST(UnpairedRatio, OfEqualValuesHasNoWidth) {
  const std::vector<double> a = {10, 10, 10}, b = {5, 5, 5};
  EXPECT_EQ(statistics::unpaired_ratio(a, b).high, statistics::unpaired_ratio(a, b).low);
  EXPECT_EQ(statistics::judge_unpaired(a, b, 0.01), statistics::Verdict::faster);
}

TEST(UnpairedRatio, MoreValuesAreNeededForNarrowerIntervals) {
  const std::vector<double> a = {10, 11, 9.5, 10.5}, b = {12, 12.5, 11, 13, 12.2};
  // By the t for 8 and for 26 degrees of freedom, integrated as above.
  EXPECT_EQ(statistics::values_needed(a, b, 0.1), 5U);
  EXPECT_EQ(statistics::values_needed(a, b, 0.05), 14U);
  EXPECT_EQ(statistics::values_needed(a, b, 1e-6), 1000U);
}

}  // namespace
}  // namespace penstock
