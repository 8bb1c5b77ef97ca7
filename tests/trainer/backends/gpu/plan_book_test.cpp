// SPDX-License-Identifier: Apache-2.0
// Tests the book of plans on disk: what it keeps, and that a damaged book costs time but never
// fails a run.
#include "trainer/backends/gpu/plan_book.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "trainer/backends/gpu/backend.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/find_plan.h"
#include "trainer/model.h"

namespace penstock::gpu {
namespace {

constexpr PlanRules kFirst{.autotune = false};

DnnGraph graph_of(std::int32_t channels) {
  return conv_forward({.images = 2, .channels = channels, .height = 5, .width = 5}).graph;
}

EngineChoice engine(std::int64_t number) { return {.engine = number, .knobs = {}}; }

class PlanBookTest : public ::testing::Test {
 protected:
  std::string file() const { return PlanBook(driver_.facts(), folder_.path()).path().string(); }
  void write(const std::string& text) const { write_text(file(), text); }
  std::size_t size() const { return PlanBook(driver_.facts(), folder_.path()).size(); }

  /// A good file with two choices, written by a book.
  std::string good() {
    PlanBook book(driver_.facts(), folder_.path());
    for (const std::int32_t channels : {8, 16}) {
      EXPECT_NE(make_plan(graph_of(channels), kFirst, driver_, book), nullptr);
    }
    book.save();
    return read_text(file());
  }
  static std::string with(std::string text, const std::string& from, const std::string& to) {
    const std::size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from << " in " << text;
    return text.replace(place, from.size(), to);
  }

  TempFolder folder_;
  HostDriver driver_;
};

TEST_F(PlanBookTest, KeepsWhatWasChosen) {
  const std::string text = good();
  EXPECT_EQ(size(), 2U);
  const PlanBook book(driver_.facts(), folder_.path());
  EXPECT_FALSE(book.copy_rate());
  EXPECT_TRUE(book.find(graph_of(8), kFirst).has_value());
  EXPECT_FALSE(book.find(graph_of(24), kFirst).has_value());
  EXPECT_FALSE(book.find(graph_of(8), {.allow_tf32 = true, .autotune = false}).has_value());
  PlanRules cramped = kFirst;
  cramped.workspace_limit = 1;
  EXPECT_FALSE(book.find(graph_of(8), cramped).has_value());
}

TEST_F(PlanBookTest, AFileOfAnotherVersionOrDeviceCountsAsNotThereAndIsWrittenAnew) {
  const std::string text = good();
  for (const std::string& other :
       {with(text, "\"format\": 4", "\"format\": 3"),
        with(text, "\"format\": 4", "\"format\": \"4\""),
        with(text, "\"dnn_version\": \"host\"", "\"dnn_version\": \"9.99\""),
        with(text, "host 0 sm_90", "host 0 sm_91")}) {
    write(other);
    EXPECT_EQ(size(), 0U);
    EXPECT_EQ(good(), text);
  }
}

TEST_F(PlanBookTest, ADamagedFileCountsAsNotThereAndIsWrittenAnew) {
  const std::string text = good();
  for (const std::string& damaged :
       {std::string(),
        std::string("["),
        std::string("[1, 2]"),
        std::string("\"plans\""),
        text.substr(0, text.size() / 2),
        text.substr(0, text.size() - 2),
        std::string(100'000, '['),
        with(text, "\"plans\": {", "\"plan\": {"),
        with(text, "\"engine\": 0", "\"engine\": \"0\""),
        with(text, "\"engine\": 0", "\"engine\": 0.5"),
        with(text, "\"engine\": 0", "\"engine\": 1e300"),
        with(text, "\"engine\": 0", "\"engine\": 18446744073709551615"),
        with(text, "\"engine\": 0", "\"engine\": null"),
        with(text, "\"knobs\": []", "\"knobs\": {}"),
        with(text, "\"knobs\": []", "\"knobs\": [[1]]"),
        with(text, "\"knobs\": []", "\"knobs\": [7]"),
        with(text, "\"us\": 0.0", "\"us\": \"fast\""),
        with(text, "\"without_engine\": {", "\"without_engine\": {\"a graph\": -0.5"),
        with(text, "\"without_engine\": {}", "\"without_engine\": []"),
        with(text, "\"failed_engines\": {}", "\"failed_engines\": {\"a graph\": [7]}"),
        with(text, "\"failed_engines\": {}", "\"failed_engines\": {\"a graph\": 7}")}) {
    write(damaged);
    EXPECT_EQ(size(), 0U) << damaged.substr(0, 300);
    EXPECT_EQ(good(), text);
  }
}

TEST_F(PlanBookTest, AChoiceThatCannotBeBuiltIsMadeAnewAndItsEngineIsRemembered) {
  write(with(good(), "\"engine\": 0", "\"engine\": 7"));
  EXPECT_EQ(size(), 2U);
  good();
  const PlanBook book(driver_.facts(), folder_.path());
  for (const std::int32_t channels : {8, 16}) {
    EXPECT_EQ(book.find(graph_of(channels), kFirst)->engine.engine, 0);
  }
  EXPECT_NE(book.has_failed(graph_of(8), engine(7)), book.has_failed(graph_of(16), engine(7)));
}

TEST_F(PlanBookTest, AnEngineThatCannotBeBuiltGivesWayToTheNextOne) {
  HostDriver driver({.engines = 3});
  PlanBook book(driver.facts(), folder_.path());
  driver.fail_at("build", 1);
  EXPECT_NE(make_plan(graph_of(8), kFirst, driver, book), nullptr);
  EXPECT_EQ(book.find(graph_of(8), kFirst)->engine.engine, 2);
  EXPECT_TRUE(book.has_failed(graph_of(8), engine(0)));
}

TEST_F(PlanBookTest, WithoutTimingOneCandidateIsAskedForAndMoreOnlyIfItFails) {
  HostDriver driver({.engines = 3});
  PlanBook book(driver.facts(), folder_.path());
  EXPECT_NE(make_plan(graph_of(8), kFirst, driver, book), nullptr);
  EXPECT_EQ(driver.asked_for(), std::vector<std::size_t>{1});
  driver.fail_at("build", 1);
  EXPECT_NE(make_plan(graph_of(16), kFirst, driver, book), nullptr);
  ASSERT_EQ(driver.asked_for().size(), 4U);
  EXPECT_EQ(driver.asked_for()[1], 1U);
  EXPECT_GT(driver.asked_for().back(), 1U);
}

TEST_F(PlanBookTest, GraphsWithoutAnEngineAreRememberedForTheSameLimitOrALowerOne) {
  {
    HostDriver without({.has_engine = [](const DnnGraph&) { return false; }});
    PlanBook book(without.facts(), folder_.path());
    EXPECT_FALSE(find_plan(graph_of(8), kFirst, without, book));
    EXPECT_EQ(book.size(), 0U);
  }
  PlanBook book(driver_.facts(), folder_.path());
  PlanRules roomy = kFirst, cramped = kFirst;
  roomy.workspace_limit *= 2;
  cramped.workspace_limit /= 2;
  EXPECT_FALSE(find_plan(graph_of(8), kFirst, driver_, book));
  EXPECT_FALSE(find_plan(graph_of(8), cramped, driver_, book));
  EXPECT_TRUE(driver_.asked_for().empty());
  EXPECT_TRUE(find_plan(graph_of(8), roomy, driver_, book));
}

TEST_F(PlanBookTest, AGraphThatTheStepNeedsIsTriedAgainWhenNoneOfItsEnginesRanBefore) {
  {
    PlanBook book(driver_.facts(), folder_.path());
    book.add_failure(graph_of(8), engine(0));
    EXPECT_FALSE(find_plan(graph_of(8), kFirst, driver_, book));
  }
  PlanBook book(driver_.facts(), folder_.path());
  EXPECT_FALSE(find_plan(graph_of(8), kFirst, driver_, book));
  EXPECT_NE(make_plan(graph_of(8), kFirst, driver_, book), nullptr);
}

std::string reason_without(const PlanRules& rules, HostDriver& driver, PlanBook& book) {
  return thrown_by<Unavailable>([&] { make_plan(graph_of(8), rules, driver, book); });
}

TEST_F(PlanBookTest, AGraphWithoutAPlanIsRefusedWithTheReason) {
  PlanBook book(driver_.facts(), {});
  PlanRules cramped = kFirst;
  cramped.workspace_limit = 1;
  EXPECT_TRUE(says(reason_without(cramped, driver_, book), "raise gpu:workspace_mib"));
  book.add_failure(graph_of(8), engine(0));
  EXPECT_TRUE(says(reason_without(kFirst, driver_, book), "each of them failed"));
  HostDriver without({.has_engine = [](const DnnGraph&) { return false; }});
  EXPECT_TRUE(says(reason_without(kFirst, without, book), "; try another --precision"));
}

TEST_F(PlanBookTest, ADeviceThatIsLostIsNoReasonToForgetAnEngine) {
  const std::string text = good();
  HostDriver driver({.cost = [](std::size_t) -> Nanoseconds { throw DeviceError("lost"); }});
  PlanBook book(driver.facts(), folder_.path());
  const StreamHandle stream = driver.make_stream();
  std::byte* const block = driver.allocate(2, MemoryKind::device);
  driver.copy(stream, block, block + 1, 1);  // every later call fails
  driver.free(block, MemoryKind::device);
  EXPECT_THROW(make_plan(graph_of(8), kFirst, driver, book), DeviceLost);
  book.save();
  EXPECT_EQ(read_text(file()), text);
}

TEST_F(PlanBookTest, ABookThatGrowsIsSavedEveryTwoSeconds) {
  Time now{};
  PlanBook book(driver_.facts(), folder_.path(), [&] { return now; });
  const auto add = [&](std::int32_t channels, std::chrono::milliseconds after) {
    now += after;
    EXPECT_TRUE(find_plan(graph_of(channels), kFirst, driver_, book));
    return size();
  };
  using std::chrono::milliseconds;
  EXPECT_EQ(add(8, milliseconds(1999)), 0U);
  EXPECT_EQ(add(16, milliseconds(1)), 2U);
  EXPECT_EQ(add(24, milliseconds(1999)), 2U);
  EXPECT_EQ(add(32, milliseconds(500)), 4U);
}

/// Compiles two convolutions in f16.
class Compilation {
 public:
  explicit Compilation(std::filesystem::path cache, const HostMachineOptions& machine = {},
                       const std::string& device = "gpu")
      : backend_(std::make_shared<HostDriverLibrary>(machine),
                 Options("gpu", kOptions, parse_component(device))),
        device_(backend_.open(0)) {
    spec.batch = {.images = 2, .image = {4, 4, 8}, .classes = 4};
    spec.precision = Precision::f16;
    spec.cache_directory = std::move(cache);
  }
  void run() {
    Graph graph({4, 4, 8});
    find_entry(model_table(), "tiny_cnn").build(graph, 4);
    backend_.compile(graph, spec, *device_);
  }
  std::vector<std::string> notes() const { return backend_.notes(); }
  ExecutableSpec spec;

 private:
  GpuBackend backend_;
  std::unique_ptr<Device> device_;
};

TEST_F(PlanBookTest, ACompilationThatIsStoppedKeepsItsPlans) {
  {
    Compilation compilation(folder_.path());
    int calls = 0;
    compilation.spec.progress = [&](std::size_t, std::size_t) {
      if (++calls == 3) throw Error("stopped");
    };
    EXPECT_THROW(compilation.run(), Error);
  }
  EXPECT_EQ(size(), 2U);
}

// ---- the limit of workspaces

constexpr std::size_t kMiB = std::size_t{1} << 20;
const HostMachineOptions kLargeFirst{.engines = 2, .first_workspace = 2 * kMiB};

TEST_F(PlanBookTest, AChoiceUnderALowLimitIsMadeAnewWhenTheLimitAllowsTheFirstEngine) {
  HostDriver driver(kLargeFirst);
  PlanRules low = kFirst, higher = kFirst;
  low.workspace_limit = kMiB;
  higher.workspace_limit = 2 * kMiB;  // the engine needs a little more
  {
    PlanBook book(driver.facts(), folder_.path());
    const std::optional<PlanChoice> choice = find_plan(graph_of(8), low, driver, book);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->engine.engine, 2);
    EXPECT_GT(choice->excluded_bytes, 2 * kMiB);
  }
  PlanBook book(driver.facts(), folder_.path());
  EXPECT_EQ(book.find(graph_of(8), higher)->engine.engine, 2);
  EXPECT_FALSE(book.find(graph_of(8), kFirst));
  EXPECT_EQ(find_plan(graph_of(8), kFirst, driver, book)->engine.engine, 0);
  EXPECT_EQ(book.find(graph_of(8), kFirst)->excluded_bytes, 0U);
}

TEST_F(PlanBookTest, ALimitThatExcludesTheFirstEngineIsNotedInEachRun) {
  for (int run = 0; run < 2; ++run) {
    Compilation limited(folder_.path(), kLargeFirst, "gpu:workspace_mib=1");
    limited.run();
    limited.run();  // of another rank
    ASSERT_EQ(limited.notes().size(), 1U);
    EXPECT_TRUE(says(limited.notes()[0], "needs up to 3 MiB of workspace; the limit is 1 MiB"));
  }
  Compilation automatic(folder_.path(), kLargeFirst);
  automatic.run();
  EXPECT_TRUE(automatic.notes().empty());
}

TEST_F(PlanBookTest, ADeviceThatIsLostWhileFormsAreComparedEndsTheCompilation) {
  Compilation compilation(folder_.path(), {.engine_cost = [](std::int64_t) -> Nanoseconds {
                            throw DeviceError("an illegal memory access");
                          }});
  EXPECT_THROW(compilation.run(), DeviceLost);
}

TEST_F(PlanBookTest, ABookIsSavedWhenItEnds) {
  {
    EXPECT_TRUE(find_plan(graph_of(8), kFirst, driver_,
                          *std::make_unique<PlanBook>(driver_.facts(), folder_.path())));
  }
  EXPECT_EQ(size(), 1U);
}

TEST_F(PlanBookTest, AWorkspaceBelowZeroIsBeyondEveryLimit) {
  const std::string text = good();
  const std::string key = "\"workspace_bytes\": ";
  write(with(text, key, key + "-"));
  EXPECT_EQ(good(), text);
}

TEST_F(PlanBookTest, AFolderThatCannotBeWrittenIsNoError) {
  PlanBook book(driver_.facts(), folder_ / "a file" / "below");
  write_text(folder_ / "a file", "in the way");
  EXPECT_NE(make_plan(graph_of(8), kFirst, driver_, book), nullptr);
  book.save();
  EXPECT_EQ(book.size(), 1U);
}

TEST_F(PlanBookTest, WithoutAFolderChoicesLastAsLongAsTheBook) {
  PlanBook book(driver_.facts(), {});
  EXPECT_NE(make_plan(graph_of(8), kFirst, driver_, book), nullptr);
  book.save();
  EXPECT_EQ(book.size(), 1U);
  EXPECT_TRUE(book.path().empty());
}

TEST_F(PlanBookTest, CopyRateIsKeptWithThePlans) {
  PlanBook book(driver_.facts(), folder_.path());
  EXPECT_FALSE(book.copy_rate());
  book.set_copy_rate(4.25e6);
  book.save();
  EXPECT_EQ(PlanBook(driver_.facts(), folder_.path()).copy_rate(), 4.25e6);
}

}  // namespace
}  // namespace penstock::gpu
