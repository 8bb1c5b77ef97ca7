// SPDX-License-Identifier: Apache-2.0
#include "dataflow/mark.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// The calls that a profiler received on this thread.
thread_local std::vector<std::string> told;
constexpr MarkFunctions kProfiler{
    .push = [](const char* name) noexcept { told.push_back(name); },
    .pop = []() noexcept { told.push_back("end"); },
};

TEST(Mark, TellsTheProfilerOfRangesThatNest) {
  told.clear();
  const Marks marks(&kProfiler, nullptr, Work::feeding);
  {
    const Mark outer(marks, "batch");
    { const Mark inner(marks, "decode"); }
    { const Mark inner(marks, "copy"); }
  }
  EXPECT_EQ(told, (std::vector<std::string>{"batch", "decode", "end", "copy", "end", "end"}));
}

TEST(Mark, GoesNowhereByDefault) {
  told.clear();
  const Marks marks;
  EXPECT_FALSE(marks.go_somewhere());
  { const Mark mark(marks, "decode"); }
  EXPECT_TRUE(told.empty());
}

TEST(Mark, LeavesASpanInALogThatIsOpen) {
  VirtualClock clock;
  const Clock::Participant participant(clock);
  SpanLog log(8, clock);
  const Marks marks(nullptr, &log, Work::staging, 3);
  { const Mark before(marks, "before"); }
  log.open();
  const Time begin = clock.now();
  {
    const Mark mark(marks, "copy");
    clock.sleep_until(begin + 2ms);
  }
  log.close();
  { const Mark after(marks, "after"); }
  ASSERT_EQ(log.entries().size(), 1U);
  const Span& span = log.entries().front();
  EXPECT_STREQ(span.name, "copy");
  EXPECT_EQ(span.work, Work::staging);
  EXPECT_EQ(span.rank, 3);
  EXPECT_EQ(span.begin, begin);
  EXPECT_EQ(span.end, begin + 2ms);
}

TEST(SpanLog, CountsWhatItHasNoPlaceFor) {
  VirtualClock clock;
  SpanLog log(100, clock);
  log.open();
  const Marks marks(nullptr, &log, Work::feeding);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int count = 0; count < 60; ++count) const Mark mark(marks, "decode");
      });
    }
  }
  EXPECT_EQ(log.entries().size(), 100U);
  EXPECT_EQ(log.dropped(), 140U);
  for (const Span& span : log.entries()) EXPECT_STREQ(span.name, "decode");
}

}  // namespace
}  // namespace penstock
