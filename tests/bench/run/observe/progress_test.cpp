// SPDX-License-Identifier: Apache-2.0
// Progress of runs: as lines of JSON, and on a single line of a terminal.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>

#include "bench/run/observe/progress_line.h"
#include "bench/run/observe/progress_meter.h"
#include "dataflow/random.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

Progress make_progress() {
  return {.phase = "window",
          .steps_done = 40,
          .steps = 100,
          .img_per_s = {512.34, 508.2, 516.4, 40},
          .queue_filled = 2,
          .queue_slots = 3,
          .elapsed_s = 3,
          .left_s = 130};
}

TEST(Progress, RoundTripsThroughALine) {
  const Progress progress = make_progress();
  const std::string line = to_line(progress);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_LT(line.size(), 512U) << "written whole into a pipe";
  const auto back = progress_from_line(line);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(to_line(*back), line);
  EXPECT_EQ(back->img_per_s, progress.img_per_s);
}

TEST(Progress, BoundsThatAreNotKnownSurviveTheLine) {
  Progress progress = make_progress();
  progress.img_per_s.high = std::numeric_limits<double>::infinity();
  const auto back = progress_from_line(to_line(progress));
  ASSERT_TRUE(back.has_value());
  EXPECT_FALSE(std::isfinite(back->img_per_s.high));
}

TEST(Progress, OtherLinesAreNone) {
  std::string half = to_line(make_progress());
  half.resize(half.size() / 2);
  for (const std::string& line : {std::string(), std::string("hello"), std::string("{}"), half}) {
    EXPECT_FALSE(progress_from_line(line).has_value()) << line;
  }
}

TEST(ProgressText, SaysRateQueueAndWhatIsLeft) {
  EXPECT_EQ(progress_text(make_progress(), 100, false),
            "window 40/100 steps  512.3 img/s +-0.8 %  queue [##-] 2/3  2 min 10 s left");
  EXPECT_EQ(progress_text({}, 100, true), "starting");
}

TEST(ProgressText, SaysWhenAWindowIsExtended) {
  Progress progress = make_progress();
  progress.steps_done = 101;
  EXPECT_TRUE(progress_text(progress, 100, false).starts_with("window 101 steps, extended  "));
}

TEST(ProgressText, LeavesOutWhatDoesNotFit) {
  for (std::size_t width = 1; width < 90; ++width) {
    EXPECT_LE(progress_text(make_progress(), width, false).size(), width);
  }
  EXPECT_EQ(progress_text(make_progress(), 30, false), "window 40/100 steps");
}

TEST(ProgressText, ColoursAnEmptyOrAFullQueueOnRequestOnly) {
  Progress progress = make_progress();
  progress.queue_filled = 0;
  EXPECT_TRUE(says(progress_text(progress, 100, true), "\x1b[31mqueue [---] 0/3\x1b[0m"));
  EXPECT_EQ(progress_text(progress, 100, false).find('\x1b'), std::string::npos);
  progress.queue_filled = 3;
  EXPECT_TRUE(says(progress_text(progress, 100, true), "\x1b[32mqueue [###]"));
}

TEST(ProgressText, DrawsLongQueuesShort) {
  Progress progress = make_progress();
  progress.queue_slots = 100;
  progress.queue_filled = 52;
  EXPECT_TRUE(says(progress_text(progress, 100, false), "[#####-----] 52/100"));
}

// ---- the meter ----------------------------------------------------------------

struct Metered {
  VirtualClock clock;
  RunConfig config = [] {
    RunConfig made;
    made.batch_size = 50;
    made.num_gpus = 2;
    made.num_batches = 100;
    return made;
  }();
  std::vector<QueueGauge> gauges{{.name = "host ring", .slots = 3, .filled = 1},
                                 {.name = "device ring 0", .slots = 2, .filled = 2}};
  ProgressMeter meter{config, [this] { return gauges; }, clock};

  void take(std::size_t steps) {
    Random random(1);
    for (std::size_t i = 0; i < steps; ++i) {
      const double noise = static_cast<double>(random.below(1000)) / 1e5;
      meter.step({.index = i, .seconds = 0.095 + noise});
    }
  }
};

TEST(ProgressMeter, KnowsNothingBeforeTheWindow) {
  Metered metered;
  EXPECT_EQ(metered.meter.now().phase, "starting");
  metered.meter.warm_up_begins();
  const Progress progress = metered.meter.now();
  EXPECT_EQ(progress.phase, "warm-up");
  EXPECT_EQ(progress.img_per_s.samples, 0U);
  EXPECT_EQ(progress.queue_filled, 1);
  EXPECT_EQ(progress.queue_slots, 3);
}

TEST(ProgressMeter, HasTheRateOfTheWindowWithItsInterval) {
  Metered metered;
  metered.meter.window_begins();
  metered.take(40);
  const Progress progress = metered.meter.now();
  EXPECT_EQ(progress.steps_done, 40);
  EXPECT_EQ(progress.steps, 100);
  EXPECT_NEAR(progress.img_per_s.value, 1000, 20) << "100 images in 95 to 105 ms";
  EXPECT_LT(progress.img_per_s.low, progress.img_per_s.value);
  EXPECT_GT(progress.img_per_s.high, progress.img_per_s.value);
  EXPECT_NEAR(progress.left_s, 6, 0.2) << "sixty steps";
}

TEST(ProgressMeter, TheTimeLeftOfAnExtendedWindowIsThatOfAllItsSteps) {
  Metered metered;
  metered.meter.window_extended(400);
  metered.meter.window_begins();
  metered.take(40);
  EXPECT_EQ(metered.meter.now().steps, 400);
  EXPECT_NEAR(metered.meter.now().left_s, 36, 1.5);
}

TEST(ProgressMeter, CountsAllStepsAndGoesByTheNewest) {
  Metered metered;
  metered.config.num_batches = 5000;
  ProgressMeter meter(
      metered.config, [&] { return metered.gauges; }, metered.clock);
  meter.window_begins();
  for (std::size_t i = 0; i < 3000; ++i) meter.step({.index = i, .seconds = i < 2500 ? 1.0 : 0.1});
  const Progress progress = meter.now();
  EXPECT_EQ(progress.steps_done, 3000);
  EXPECT_NEAR(progress.img_per_s.value, 1000, 1e-6);
  EXPECT_NEAR(progress.left_s, 200, 1e-6);
}

TEST(ProgressMeter, OneStepHasARateOfUnknownWidth) {
  Metered metered;
  metered.meter.window_begins();
  metered.take(1);
  const std::string text = progress_text(metered.meter.now(), 100, false);
  EXPECT_TRUE(says(text, "img/s  queue"));
}

TEST(ProgressMeter, AWindowThatBeginsAgainForgetsTheOneBefore) {
  Metered metered;
  metered.meter.window_begins();
  metered.take(40);
  metered.meter.evaluation_begins(40);
  EXPECT_EQ(metered.meter.now().phase, "evaluation");
  metered.meter.evaluated({});
  EXPECT_EQ(metered.meter.now().steps_done, 40);
  metered.meter.window_begins();
  EXPECT_EQ(metered.meter.now().steps_done, 0);
}

TEST(ListenerGroup, TellsEveryMember) {
  Metered first, second;
  ListenerGroup group;
  group.add(first.meter);
  group.add(second.meter);
  group.warm_up_begins();
  group.window_begins();
  group.step({.seconds = 0.1});
  EXPECT_EQ(first.meter.now().steps_done, 1);
  EXPECT_EQ(second.meter.now().steps_done, 1);
}

// ---- the line -----------------------------------------------------------------

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// What `use` writes to a file.
template <typename Use>
std::string written(bool single, Use use) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::tmpfile());
  {
    LiveLine line(file.get(), single);
    use(line);
  }
  std::string text(static_cast<std::size_t>(std::ftell(file.get())), 0);
  std::rewind(file.get());
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file.get()), text.size());
  return text;
}

TEST(LiveLine, IsReplacedAndTakenAwayAtTheEnd) {
  EXPECT_EQ(written(true,
                    [](LiveLine& line) {
                      line.pass("one");
                      line.pass("two");
                    }),
            "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K");
}

TEST(LiveLine, WhatStaysGoesAboveIt) {
  EXPECT_EQ(written(true,
                    [](LiveLine& line) {
                      line.pass("one");
                      line.print("for good");
                    }),
            "\r\x1b[Kone\r\x1b[Kfor good\n");
}

TEST(LiveLine, InAFileOnlyWhatStaysIsThere) {
  EXPECT_EQ(written(false,
                    [](LiveLine& line) {
                      line.pass("one");
                      line.print("for good");
                    }),
            "for good\n");
}

/// The output to a file, which is not a terminal.
template <typename Updates>
std::string said(Updates updates) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  {
    JobLine line(file);
    updates(line);
  }
  std::fclose(file);
  const std::unique_ptr<char, void (*)(void*)> owner(text, std::free);
  return {text, size};
}

TEST(JobLine, IsSilentInItsFirstSecond) {
  EXPECT_EQ(said([](JobLine& line) {
              for (std::uint64_t i = 0; i <= 100; ++i)
                line.update_at(999ms, "reading", i, 100, "x");
            }),
            "");
}

TEST(JobLine, PrintsALineEveryFiveSecondsToAFile) {
  EXPECT_EQ(said([](JobLine& line) {
              for (std::uint64_t i = 0; i <= 100; ++i) {
                line.update_at(i * 100ms, "compiling resnet50", i, 100, "operators");
              }
            }),
            "penstock: compiling resnet50: 10 of 100 operators\n"
            "penstock: compiling resnet50: 60 of 100 operators\n");
}

}  // namespace
}  // namespace penstock
