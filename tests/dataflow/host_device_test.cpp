// SPDX-License-Identifier: Apache-2.0
// Copies on a timeline and waiting for it, with a simulated clock; and guarantees of the steady
// clock.
#include "dataflow/host_device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class HostDeviceTest : public ::testing::Test {
 protected:
  explicit HostDeviceTest(HostDeviceOptions options = {.copy_bytes_per_s = 1e6})
      : device_(clock_, std::move(options)) {}

  Time end_of(Stream& stream) { return static_cast<Timeline*>(stream.native())->free_at(); }
  void copy(Stream& stream) { stream.copy(to_.bytes(), from_.bytes()); }

  VirtualClock clock_;
  const Clock::Participant self_{clock_};
  HostDevice device_;
  const Time start_ = clock_.now();
  Buffer from_ = device_.allocate(3000, MemoryKind::pinned);  // 3 ms at 10^6 bytes per second
  Buffer to_ = device_.allocate(3000, MemoryKind::device);
};

TEST_F(HostDeviceTest, ACopyIsDoneWhenItsEngineWouldBe) {
  const auto stream = device_.make_stream();
  std::memset(from_.bytes().data(), 7, 3000);
  copy(*stream);
  EXPECT_EQ(to_.bytes()[2999], std::byte{7});  // the bytes were copied
  EXPECT_EQ(clock_.now(), start_);             // no thread waited
  EXPECT_EQ(end_of(*stream), start_ + 3ms);
}

TEST_F(HostDeviceTest, CopiesOfOneStreamFollowEachOtherWithoutHoldingTheHost) {
  const auto stream = device_.make_stream();
  for (int i = 1; i <= 3; ++i) copy(*stream);
  EXPECT_EQ(clock_.now(), start_);
  EXPECT_EQ(end_of(*stream), start_ + 9ms);
}

TEST_F(HostDeviceTest, ACopyWaitsForItsTargetAndBeginsExactlyThen) {
  const auto compute = device_.make_stream(), copies = device_.make_stream();
  const auto read = device_.make_event();
  static_cast<Timeline*>(compute->native())->occupy(5ms);
  compute->record(*read);
  copies->wait_for(*read);
  copy(*copies);
  EXPECT_EQ(clock_.now(), start_ + 5ms);  // its bytes may not move before that
  EXPECT_EQ(end_of(*copies), start_ + 8ms);
}

TEST_F(HostDeviceTest, ACopyBehindACopyStillWaitsForWhatItNeeds) {
  const auto compute = device_.make_stream(), copies = device_.make_stream();
  const auto read = device_.make_event();
  static_cast<Timeline*>(compute->native())->occupy(2ms);
  compute->record(*read);
  copy(*copies);
  copies->wait_for(*read);  // ends before the copy in front of it
  copy(*copies);
  EXPECT_EQ(clock_.now(), start_ + 2ms);
  EXPECT_EQ(end_of(*copies), start_ + 6ms);
}

TEST_F(HostDeviceTest, AWaitForACopyIsAWaitForItsEngine) {
  const auto copies = device_.make_stream(), compute = device_.make_stream();
  const auto written = device_.make_event();
  copy(*copies);
  copies->record(*written);
  compute->wait_for(*written);
  EXPECT_EQ(end_of(*compute), start_ + 3ms);
  EXPECT_FALSE(written->wait_until(start_ + 1ms));
  EXPECT_EQ(clock_.now(), start_ + 1ms);
  EXPECT_TRUE(written->wait_until(Time::max()));
  EXPECT_EQ(clock_.now(), start_ + 3ms);
}

class FreeCopiesTest : public HostDeviceTest {
 protected:
  FreeCopiesTest() : HostDeviceTest({.copies = false, .copy_bytes_per_s = 1e6}) {}
};

TEST_F(FreeCopiesTest, AnEngineWithoutMemcpyTakesItsTimeAndMovesNothing) {
  const auto stream = device_.make_stream();
  std::memset(from_.bytes().data(), 7, 3000);
  static_cast<Timeline*>(stream->native())->occupy(5ms);
  copy(*stream);
  EXPECT_EQ(to_.bytes()[2999], std::byte{0});
  EXPECT_EQ(clock_.now(), start_);
  EXPECT_EQ(end_of(*stream), start_ + 8ms);
}

class WatchedTest : public HostDeviceTest {
 protected:
  WatchedTest()
      : HostDeviceTest({.spin = 50us, .waited = [this](Nanoseconds late, Nanoseconds spun) {
                          ++waits_;
                          late_ += late;
                          spun_ += spun;
                        }}) {}
  int waits_ = 0;
  Nanoseconds late_{}, spun_{};
};

TEST_F(WatchedTest, ASimulatedClockIsNeverLateAndNeverSpins) {
  const auto stream = device_.make_stream();
  const auto event = device_.make_event();
  static_cast<Timeline*>(stream->native())->occupy(5ms);
  stream->record(*event);
  EXPECT_TRUE(event->wait_until(Time::max()));
  EXPECT_TRUE(event->wait_until(Time::max()));  // has ended: no wait
  EXPECT_EQ(clock_.now(), start_ + 5ms);
  EXPECT_EQ(waits_, 1);
  EXPECT_EQ(late_, 0ns);
  EXPECT_EQ(spun_, 0ns);
}

TEST(SteadyClock, SleepsEndNoEarlierThanTheirDeadlines) {
  SteadyClock clock;
  for (const Nanoseconds spin : {0us, 50us, 10'000us}) {
    const Time begin = clock.now();
    const Nanoseconds spun = clock.sleep_exactly_until(begin + 300us, spin);
    const Nanoseconds slept = clock.now() - begin;
    EXPECT_GE(slept, 300us);
    EXPECT_GE(spun, 0us);
    EXPECT_LE(spun, slept);
    clock.sleep_until(begin + 600us, {});
    EXPECT_GE(clock.now() - begin, 600us);
  }
}

TEST(SteadyClock, PastDeadlinesNeedNoWait) {
  SteadyClock clock;
  EXPECT_EQ(clock.sleep_exactly_until(Time{}, 1h), 0ns);
  EXPECT_EQ(clock.sleep_exactly_until(clock.now() - 1ns, 1h), 0ns);
}

TEST(SteadyClock, AStopRequestEndsASleep) {
  SteadyClock clock;
  std::stop_source stop;
  stop.request_stop();
  const Time deadline = clock.now() + 1h;
  clock.sleep_until(deadline, stop.get_token());
  EXPECT_LT(clock.now(), deadline);
}

}  // namespace
}  // namespace penstock
