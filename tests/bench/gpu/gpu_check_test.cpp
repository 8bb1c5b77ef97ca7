// SPDX-License-Identifier: Apache-2.0
// The checks of penstock_gpu_check detect wrong results.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/gpu/check_report.h"
#include "bench/gpu/dnn_check.h"
#include "bench/gpu/workbench.h"
#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "trainer/backend.h"
#include "trainer/backends/gpu/dnn_patterns.h"

namespace penstock::gpu {
namespace {

Bytes floats(std::initializer_list<float> values) {
  const auto bytes = std::as_bytes(std::span(values.begin(), values.size()));
  return {bytes.begin(), bytes.end()};
}

TEST(GpuCheckDistance, IsRelativeToTheNormOfWhatIsExpected) {
  EXPECT_EQ(distance_of(floats({3, 4}), floats({3, 4}), Content::f32), 0);
  EXPECT_DOUBLE_EQ(distance_of(floats({3, 9}), floats({3, 4}), Content::f32), 1);
}

TEST(GpuCheckDistance, IsInfiniteWhereANumberIsMissing) {
  EXPECT_TRUE(std::isinf(distance_of(poison(8), floats({3, 4}), Content::f32)));
  EXPECT_TRUE(std::isinf(distance_of(floats({3, 4}), poison(8), Content::f32)));
  EXPECT_TRUE(std::isinf(distance_of(floats({1, 4}), floats({0, 0}), Content::f32)));
}

TEST(GpuCheckDistance, LeavesOutWhatNeitherSideWrote) {
  Bytes found = floats({3, 4}), expected = floats({3, 4});
  for (Bytes* const side : {&found, &expected}) std::fill_n(side->begin(), 4, std::byte{0xff});
  found[4] = std::byte{1};
  EXPECT_GT(distance_of(found, expected, Content::f32), 0);
  EXPECT_LT(distance_of(found, expected, Content::f32), 1e-6);
}

TEST(GpuCheckDistance, ReadsShortTypes) {
  for (const DType type : {DType::f16, DType::bf16}) {
    Random one(1), same(1), other(2);
    const Bytes a = random_elements(type, 1000, one, -1, 1);
    EXPECT_EQ(distance_of(a, random_elements(type, 1000, same, -1, 1), content_of(type)), 0);
    EXPECT_NEAR(distance_of(a, random_elements(type, 1000, other, -1, 1), content_of(type)),
                std::sqrt(2.), 0.2);
    for (const double value : values_of(a, content_of(type))) EXPECT_LE(std::abs(value), 1);
  }
}

TEST(GpuCheckDistance, OfBitsIsTheShareOfBytesThatDiffer) {
  Bytes a(8), b(8);
  b[3] = std::byte{1};
  EXPECT_DOUBLE_EQ(distance_of(a, b, Content::bits), 0.125);
}

TEST(GpuCheckDistance, OfResultsAllowsForLossesOnly) {
  const auto bytes = [](const StepResult& result) {
    const auto view = std::as_bytes(std::span(&result, 1));
    return Bytes(view.begin(), view.end());
  };
  StepResult a{.loss = 2, .images = 8}, b = a;
  b.loss = 2.5;
  EXPECT_DOUBLE_EQ(distance_of(bytes(b), bytes(a), Content::result), 0.25);
  b.top1 = 1;
  EXPECT_TRUE(std::isinf(distance_of(bytes(b), bytes(a), Content::result)));
}

TEST(GpuCheckReport, FailsWithAnyFailureAndKeepsTheFigures) {
  const TempFolder folder;
  const auto file = folder.path() / "checks.json";
  CheckReport report({.json = file}, "verb");
  report.add("good", Verdict::pass, {{"error", 0.5}});
  report.add("bad", Verdict::fail, {{"error", INFINITY}}, "a \"reason\"");
  EXPECT_EQ(report.finish(), 1);
  const auto json = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(json.at("failed"), 1);
  EXPECT_EQ(json.at("checks").at(0).at("figures").at("error"), 0.5);
  EXPECT_TRUE(json.at("checks").at(1).at("figures").at("error").is_null());
  EXPECT_EQ(json.at("checks").at(1).at("text"), "a \"reason\"");
}

TEST(GpuCheckGraphs, AfterADeviceIsLostNoOtherCheckIsMade) {
  const TempFolder folder;
  const auto file = folder.path() / "checks.json";
  HostDriver driver({.engine_cost = [](std::int64_t) -> Nanoseconds {
    throw DeviceError("an illegal memory access");
  }});
  const DnnGraph graph =
      conv_forward({.images = 1, .channels = 8, .height = 2, .width = 2, .filters = 8}).graph;
  CheckReport report({.json = file}, "verb");
  {
    Workbench bench(driver);
    EXPECT_THROW(
        check_graphs({{.name = "first", .graph = graph}, {.name = "second", .graph = graph}}, {},
                     bench, report),
        DeviceLost);
  }
  report.finish();
  const auto checks = nlohmann::json::parse(read_text(file)).at("checks");
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_EQ(checks.at(0).at("name"), "first");
}

TEST(GpuCheckReport, PassesWithoutAFailure) {
  CheckReport report({}, "verb");
  report.add("absent", Verdict::skip, {}, "why");
  EXPECT_EQ(report.finish(), 0);
}

TEST(GpuCheckReport, SelectsChecksWhoseNamesContainAGivenPart) {
  CheckReport all({}, "verb"), some({.only = "conv,pool"}, "verb");
  EXPECT_TRUE(all.wants("anything"));
  EXPECT_TRUE(some.wants("max_pool"));
  EXPECT_TRUE(some.wants("conv_1x1"));
  EXPECT_FALSE(some.wants("batch_norm"));
}

TEST(GpuCheckReport, WantsNothingOnceTheTimeIsUp) {
  CheckReport report({.seconds = 1e-9}, "verb");
  EXPECT_FALSE(report.wants("anything"));
}

class GpuCheckResume : public ::testing::Test {
 protected:
  CheckSettings settings(bool resume) const { return {.json = file_, .resume = resume}; }
  nlohmann::json json() const { return nlohmann::json::parse(read_text(file_)); }

  const TempFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "checks.json";
};

TEST_F(GpuCheckResume, MakesOnlyTheChecksThatTheEarlierCallLeft) {
  CheckReport first(settings(false), "verb");
  first.add("good", Verdict::pass, {{"error", 0.5}});
  first.add("bad", Verdict::fail, {{"error", NAN}}, "reason");
  first.finish();
  CheckReport second(settings(true), "verb");
  EXPECT_FALSE(second.wants("good"));
  EXPECT_FALSE(second.wants("bad"));
  EXPECT_TRUE(second.wants("left"));
  second.add("left", Verdict::pass, {});
  EXPECT_EQ(second.finish(), 1) << "the earlier failure counts";
  EXPECT_EQ(json().at("checks").size(), 3);
  EXPECT_EQ(json().at("checks").at(0).at("figures").at("error"), 0.5);
  EXPECT_EQ(json().at("checks").at(1).at("text"), "reason");
  EXPECT_TRUE(CheckReport(settings(false), "verb").wants("good")) << "not without --resume";
}

TEST_F(GpuCheckResume, ReplacesALineThatIsMadeAgain) {
  CheckReport first(settings(false), "verb");
  first.add("count", Verdict::fail, {});
  first.finish();
  CheckReport second(settings(true), "verb");
  second.add("count", Verdict::pass, {});
  EXPECT_EQ(second.finish(), 0);
  EXPECT_EQ(json().at("checks").size(), 1);
}

TEST_F(GpuCheckResume, TakesNothingFromADamagedFileOrAnotherVerb) {
  for (const char* text :
       {"{\"verb\":\"verb\",\"che", "[]", R"({"verb":"verb","checks":[{"name":1}]})",
        R"({"verb":"verb","checks":[{"name":"a","verdict":"?","text":""}]})",
        R"({"verb":"other","checks":[]})"}) {
    write_text(file_, text);
    CheckReport report(settings(true), "verb");
    EXPECT_TRUE(report.wants("a")) << text;
    EXPECT_EQ(report.finish(), 0) << text;
  }
}

TEST_F(GpuCheckResume, FindsWhatAProgramThatWasKilledHadWritten) {
  CheckReport killed(settings(false), "verb");
  killed.add("first", Verdict::pass, {});
  EXPECT_FALSE(CheckReport(settings(true), "verb").wants("first")) << "written before the end";
}

}  // namespace
}  // namespace penstock::gpu
