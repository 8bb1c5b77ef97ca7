// SPDX-License-Identifier: Apache-2.0
// Tests the overlapping exchange: its times on a simulated clock, its order, its failures, and its
// sums against those of one exchange after the backward pass.
#include "trainer/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <future>
#include <map>
#include <set>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/random.h"
#include "tests/support/rank_threads.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"
#include "trainer/collectives/threads.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Parameters with these numbers of elements, and values for their gradients.
class Gradients {
 public:
  explicit Gradients(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) values_.resize(values_.size() + count);
    float* first = values_.data();
    for (const std::size_t count : counts) {
      set_.parameters.push_back({{}, {}, {first, count}});
      first += count;
    }
    set_.gradients = {values_.data(), values_.size()};
  }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;
  const ParameterSet& set() const { return set_; }
  std::vector<float>& values() { return values_; }

 private:
  std::vector<float> values_;
  ParameterSet set_;
};

/// Takes a millisecond per element, remembers the arguments and threads of its calls, and throws in
/// one call.
class PacedCollective final : public Collective {
 public:
  explicit PacedCollective(Clock& clock, int failing_call = -1)
      : clock_(clock), failing_call_(failing_call) {}
  World world() const noexcept override { return {0, 2}; }
  bool recordable() const noexcept override { return true; }
  void all_reduce_sum(Tensor tensor, Stream&) override {
    if (static_cast<int>(counts.size()) == failing_call_) throw DeviceError("the link is down");
    counts.push_back(tensor.count);
    threads.insert(std::this_thread::get_id());
    clock_.sleep_until(clock_.now() + std::chrono::milliseconds(tensor.count));
  }
  void reduce_sum(Tensor, std::int32_t, Stream&) override {}
  void broadcast(Tensor, std::int32_t, Stream&) override {}

  std::vector<std::size_t> counts;    // of each call
  std::set<std::thread::id> threads;  // the calling threads

 private:
  Clock& clock_;
  const int failing_call_;
};

constexpr BucketLimits kOneEach{.first_bytes = 1, .bytes = 1};

class PacedExchange : public ::testing::Test {
 protected:
  VirtualClock clock_;
  const Clock::Participant here_{clock_};
  HostDevice device_{clock_};
  const std::unique_ptr<Stream> stream_ = device_.make_stream();

  /// An exchange that has started, of gradients with these numbers of elements.
  struct Started {
    Started(PacedExchange& test, const std::vector<std::size_t>& counts, int failing_call = -1,
            const BucketLimits& limits = kOneEach)
        : gradients(counts),
          collective(test.clock_, failing_call),
          exchange(collective, gradients.set(), test.device_, test.clock_, limits) {
      exchange.start();
    }
    Gradients gradients;
    PacedCollective collective;
    ThreadExchange exchange;
  };
};

TEST_F(PacedExchange, ExposesWhatTheOverlapFormulaSays) {
  // c_j = max(c_(j-1), t_j) + T_j; exposed = max(0, c_last - T_b).
  struct Case {
    std::vector<std::size_t> counts;               // T_j in ms
    std::vector<std::chrono::milliseconds> ready;  // t_j
    std::chrono::milliseconds backward, exposed;   // T_b; expected
  };
  const Case cases[] = {
      {{2, 2, 2}, {1ms, 5ms, 9ms}, 12ms, 0ms},     // hidden
      {{2, 2, 2}, {1ms, 5ms, 12ms}, 12ms, 2ms},    // the last bucket is exposed
      {{20, 1, 1}, {1ms, 2ms, 3ms}, 4ms, 19ms},    // the first bucket delays the others
      {{3, 4, 5}, {10ms, 10ms, 10ms}, 10ms, 12ms}  // nothing is hidden
  };
  for (const Case& test : cases) {
    Started run(*this, test.counts);
    Nanoseconds busy{};
    for (const std::size_t count : test.counts) busy += std::chrono::milliseconds(count);
    for (int step = 1; step <= 3; ++step) {
      const Time begin = clock_.now();
      const GradientReady ready = run.exchange.ready(*stream_);
      for (std::size_t i = 0; i < test.counts.size(); ++i) {
        clock_.sleep_until(begin + test.ready[i]);
        ready(i);
      }
      clock_.sleep_until(begin + test.backward);
      run.exchange.finish(*stream_);
      EXPECT_EQ(clock_.now() - begin, test.backward + test.exposed);
      const ExchangeTimes times = run.exchange.times();
      EXPECT_EQ(times.steps, step);
      EXPECT_EQ(times.busy, step * busy);
      EXPECT_EQ(times.exposed, step * Nanoseconds(test.exposed));
      EXPECT_EQ(run.exchange.exposed(static_cast<std::size_t>(step) - 1),
                Nanoseconds(test.exposed));
      EXPECT_EQ(least_exposed(times.buckets), times.exposed);
      ASSERT_EQ(times.buckets.size(), 3U);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(times.buckets[i].bytes, test.counts[i] * sizeof(float));
        EXPECT_EQ(times.buckets[i].lead, step * Nanoseconds(test.backward - test.ready[i]));
        EXPECT_EQ(times.buckets[i].busy, step * std::chrono::milliseconds(test.counts[i]));
      }
    }
  }
}

TEST_F(PacedExchange, BucketsGoInThePlansOrderWhateverOrderGradientsComeIn) {
  Started run(*this, {1, 2, 3, 4});
  const GradientReady ready = run.exchange.ready(*stream_);
  for (const std::size_t parameter : {3U, 1U, 0U, 2U}) ready(parameter);
  run.exchange.finish(*stream_);
  EXPECT_EQ(run.collective.counts, (std::vector<std::size_t>{1, 2, 3, 4}));
}

TEST_F(PacedExchange, ABucketWaitsForAllOfItsParameters) {
  Started run(*this, {1, 2, 3, 4}, -1, {.first_bytes = 12, .bytes = 28});
  const GradientReady ready = run.exchange.ready(*stream_);
  ready(1);
  clock_.sleep_until(clock_.now() + 1s);
  EXPECT_EQ(run.exchange.plan().buckets().size(), 2U);
  const Time begin = clock_.now();
  ready(0);  // completes the first bucket: 3 ms
  ready(2);
  ready(3);  // completes the second bucket: 7 ms
  run.exchange.finish(*stream_);
  EXPECT_EQ(run.collective.counts, (std::vector<std::size_t>{3, 7}));
  EXPECT_EQ(clock_.now() - begin, 10ms);
}

TEST_F(PacedExchange, WhatWasNotReportedIsExchangedBehindBackward) {
  Started run(*this, {1, 2});
  run.exchange.ready (*stream_)(0);
  run.exchange.finish(*stream_);
  run.exchange.finish(*stream_);
  EXPECT_EQ(run.collective.counts, (std::vector<std::size_t>{1, 2, 1, 2}));
}

TEST_F(PacedExchange, WithoutGradientsRanksOnlyMeet) {
  PacedCollective collective(clock_);
  const ParameterSet none;
  ThreadExchange exchange(collective, none, device_, clock_, BucketLimits{});
  exchange.start();
  exchange.finish(*stream_);
  EXPECT_EQ(collective.counts, (std::vector<std::size_t>{0}));
}

TEST_F(PacedExchange, AllCallsComeFromOneThreadWhichIsNotTheReplicas) {
  Started run(*this, {1, 2, 3});
  for (int step = 0; step < 4; ++step) run.exchange.finish(*stream_);
  EXPECT_EQ(run.collective.threads.size(), 1U);
  EXPECT_FALSE(run.collective.threads.contains(std::this_thread::get_id()));
}

TEST_F(PacedExchange, OnAStreamTheReplicasThreadCallsInThePlansOrderAlsoWithoutReports) {
  Gradients gradients({1, 2, 3});
  PacedCollective collective(clock_);
  StreamExchange exchange(collective, gradients.set(), device_, clock_, kOneEach, 2);
  exchange.start();
  const GradientReady ready = exchange.ready(*stream_);
  for (const std::size_t parameter : {2U, 0U}) ready(parameter);
  for (int step = 0; step < 3; ++step) exchange.finish(*stream_);
  EXPECT_EQ(collective.counts, (std::vector<std::size_t>{1, 2, 3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(collective.threads, std::set{std::this_thread::get_id()});
  EXPECT_EQ(exchange.times().steps, 3);
}

TEST_F(PacedExchange, AFailureReachesTheReplica) {
  Started run(*this, {1, 2, 3}, 4);  // fails in the second bucket of the second step
  run.exchange.finish(*stream_);
  run.exchange.ready (*stream_)(0);
  EXPECT_EQ(thrown_by<DeviceError>([&] { run.exchange.finish(*stream_); }), "the link is down");
  EXPECT_EQ(run.exchange.times().steps, 1) << "a step that failed does not count";
}

TEST_F(PacedExchange, TheDevicesOwnTimeIsNotExposed) {
  // The host finishes the backward pass at once, the device's timeline 5 ms later.
  Started run(*this, {2});
  static_cast<Timeline*>(stream_->native())->occupy(5ms);
  run.exchange.finish(*stream_);
  EXPECT_EQ(run.exchange.times().busy, 2ms);
  EXPECT_EQ(run.exchange.times().exposed, 0ms);
}

TEST_F(PacedExchange, EndsWhereBackwardNeverCameToItsEnd) {
  Gradients gradients({1, 2});
  PacedCollective collective(clock_);
  {
    ThreadExchange never_started(collective, gradients.set(), device_, clock_, kOneEach);
    ThreadExchange exchange(collective, gradients.set(), device_, clock_, kOneEach);
    exchange.start();
    exchange.ready (*stream_)(1);
  }
  EXPECT_TRUE(collective.counts.empty()) << "the first bucket was never complete";
}

// ---- among ranks ------------------------------------------------------------

std::vector<float> random_values(std::size_t count, std::int32_t rank, int step) {
  Random random(7, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.uniform(-1, 1));
  return values;
}

constexpr int kSteps = 3;
const std::vector<std::size_t> kCounts{1000, 1, 4099, 64, 17, 2048, 3};

/// Every rank's gradients after each step, one after the other.
using Sums = std::map<std::int32_t, std::vector<float>>;

/// Without limits: one exchange after the backward pass, on the rank's own thread.
Sums sums_of(std::int32_t ranks, const BucketLimits* limits) {
  SteadyClock clock;
  HostDevice device(clock);
  const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device);
  collectives::ThreadsGroup group(devices, clock, {});
  Sums sums;
  for (std::int32_t rank = 0; rank < ranks; ++rank) sums[rank] = {};
  run_ranks(ranks, [&](std::int32_t rank) {
    Gradients gradients(kCounts);
    const std::unique_ptr<Collective> collective = group.join(rank);
    const std::unique_ptr<Stream> stream = device.make_stream();
    std::unique_ptr<GradientExchange> exchange;
    if (limits != nullptr) {
      exchange =
          std::make_unique<ThreadExchange>(*collective, gradients.set(), device, clock, *limits);
      exchange->start();
    }
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> values = random_values(gradients.values().size(), rank, step);
      const GradientReady ready = exchange ? exchange->ready(*stream) : GradientReady();
      const float* from = values.data();
      for (std::size_t i = 0; i < kCounts.size(); ++i) {
        std::copy_n(from, kCounts[i],
                    static_cast<float*>(gradients.set().parameters[i].gradient.data));
        from += kCounts[i];
        if (ready) ready(i);
      }
      if (exchange) {
        exchange->finish(*stream);
      } else {
        collective->all_reduce_sum(gradients.set().gradients, *stream);
      }
      std::vector<float>& mine = sums.at(rank);
      mine.insert(mine.end(), gradients.values().begin(), gradients.values().end());
    }
  });
  return sums;
}

TEST(GradientExchange, SumsAreBitIdenticalToOneExchange) {
  for (const std::int32_t ranks : {2, 3, 4}) {
    const Sums expected = sums_of(ranks, nullptr);
    for (const BucketLimits limits :
         {BucketLimits{}, kOneEach, BucketLimits{.first_bytes = 100, .bytes = 9000},
          BucketLimits{.first_bytes = 0, .bytes = 0}}) {
      EXPECT_EQ(sums_of(ranks, &limits), expected)
          << ranks << " ranks, buckets of " << limits.bytes << " bytes";
    }
  }
}

TEST(GradientExchange, AStopFreesARankThatWaitsForOthers) {
  SteadyClock clock;
  HostDevice device(clock);
  Device* const devices[] = {&device, &device};
  std::stop_source stop;
  collectives::ThreadsGroup group(devices, clock, stop.get_token());
  std::promise<void> handed_over;
  std::future<void> waiting = std::async(std::launch::async, [&] {
    Gradients gradients({1, 2});
    const std::unique_ptr<Collective> collective = group.join(0);
    const std::unique_ptr<Stream> stream = device.make_stream();
    ThreadExchange exchange(*collective, gradients.set(), device, clock, kOneEach);
    exchange.start();
    exchange.ready (*stream)(0);
    handed_over.set_value();
    exchange.finish(*stream);
  });
  handed_over.get_future().wait();
  stop.request_stop();
  ASSERT_EQ(waiting.wait_for(5s), std::future_status::ready);
  EXPECT_THROW(waiting.get(), Error);
}

TEST(GradientExchange, ARankThatLeavesInBackwardLetsTheOthersLeave) {
  SteadyClock clock;
  HostDevice device(clock);
  const std::vector<Device*> devices(3, &device);
  std::stop_source stop;
  collectives::ThreadsGroup group(devices, clock, stop.get_token());
  std::atomic<int> left{0};
  std::barrier all_have_stepped(3);
  // As in a session, they outlive all ranks: the remaining ranks may still read the first rank's.
  const std::vector<std::size_t> counts = {1, 2};
  std::array gradients = {Gradients(counts), Gradients(counts), Gradients(counts)};
  run_ranks(3, [&](std::int32_t rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    const std::unique_ptr<Stream> stream = device.make_stream();
    ThreadExchange exchange(*collective, gradients[static_cast<std::size_t>(rank)].set(), device,
                            clock, kOneEach);
    exchange.start();
    exchange.finish(*stream);
    all_have_stepped.arrive_and_wait();
    exchange.ready (*stream)(0);
    if (rank == 1) {  // as in a session whose replica failed
      stop.request_stop();
      return;
    }
    EXPECT_THROW(exchange.finish(*stream), Error);
    ++left;
  });
  EXPECT_EQ(left, 2);
}

}  // namespace
}  // namespace penstock
