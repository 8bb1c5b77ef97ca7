// SPDX-License-Identifier: Apache-2.0
// What every exchange of ranks that are threads here must keep: over shared tensors, over links,
// and nested, with the processes emulated by threads.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/rank_threads.h"
#include "tests/support/virtual_clock.h"
#include "trainer/collectives/link_collective.h"
#include "trainer/collectives/nested.h"
#include "trainer/collectives/threads.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

struct Exchange {
  const char* name;
  std::int32_t threads;  ///< of each process; ranks are a multiple of it
  bool links = false;    ///< instead of shared tensors
  bool nested = false;   ///< processes with that number of threads each
};

/// The group of an exchange, for all of its ranks.
class Group {
 public:
  Group(const Exchange& exchange, std::int32_t ranks, Device& device, Clock& clock,
        std::stop_token stop = {})
      : threads_(exchange.threads) {
    const auto devices = [&device](std::int32_t count) {
      return std::vector<Device*>(static_cast<std::size_t>(count), &device);
    };
    if (exchange.links) {  // two algorithms, by size, the second one in pieces
      const auto entries = collectives::all_reduce_table().entries;
      whole_ = std::make_unique<collectives::LinkGroup>(
          devices(ranks), clock, 1min, stop,
          collectives::ExchangeChoice{.plan = {{entries.front(), 1, 8}, {entries.back(), 3}},
                                      .local_ranks = 2});
      return;
    }
    whole_ = std::make_unique<collectives::ThreadsGroup>(
        devices(exchange.nested ? ranks / threads_ : ranks), clock, stop);
    for (std::int32_t process = 0; exchange.nested && process < ranks / threads_; ++process) {
      across_.push_back(whole_->join(process));
      const std::vector<Device*> mine = devices(threads_);
      nested_.push_back(std::make_unique<collectives::NestedGroup>(
          threads_ > 1 ? std::make_unique<collectives::ThreadsGroup>(mine, clock, stop) : nullptr,
          mine, *across_.back()));
    }
  }
  std::unique_ptr<Collective> join(std::int32_t rank) {
    if (nested_.empty()) return whole_->join(rank);
    return nested_[static_cast<std::size_t>(rank / threads_)]->join(rank);
  }

 private:
  const std::int32_t threads_;
  std::unique_ptr<CollectiveGroup> whole_;
  std::vector<std::unique_ptr<Collective>> across_;  // by process
  std::vector<std::unique_ptr<collectives::NestedGroup>> nested_;
};

constexpr std::size_t kSizes[] = {0, 1, 2, 3, 7, 8, 63, 1000, 4099, 65537};

/// Small whole numbers: their sums are exact in any order.
std::vector<float> elements(std::int32_t rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((rank + 1) * (static_cast<std::int32_t>(i % 89) + 1));
  }
  return values;
}
std::vector<float> sums(std::int32_t ranks, std::size_t count) {
  return elements(ranks * (ranks + 1) / 2 - 1, count);
}

class Collectives : public testing::TestWithParam<Exchange> {
 protected:
  using Body = std::function<void(Collective&, Stream&)>;
  /// Runs `body` on that number of ranks, each a thread.
  void run(std::int32_t ranks, const Body& body, std::stop_token stop = {}) {
    Group group(GetParam(), ranks, device_, clock_, std::move(stop));
    run_ranks(ranks, [&](std::int32_t rank) {
      const std::unique_ptr<Collective> collective = group.join(rank);
      body(*collective, *device_.make_stream());
    });
  }
  /// Runs `body` for every size in groups of one to five processes.
  void run_all(const std::function<void(Collective&, Stream&, std::size_t count)>& body) {
    for (std::int32_t ranks = GetParam().threads; ranks <= 5; ranks += GetParam().threads) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks");
      run(ranks, [&](Collective& collective, Stream& stream) {
        for (const std::size_t count : kSizes) body(collective, stream, count);
      });
    }
  }

  SteadyClock clock_;
  HostDevice device_{clock_};
};

TEST_P(Collectives, AllRanksGetTheSum) {
  run_all([](Collective& collective, Stream& stream, std::size_t count) {
    const auto [rank, ranks] = collective.world();
    EXPECT_TRUE(collective.recordable());
    for (int round = 0; round < 2; ++round) {
      std::vector<float> values = elements(rank, count);
      collective.all_reduce_sum({values.data(), count}, stream);
      EXPECT_EQ(values, sums(ranks, count));
    }
  });
}

TEST_P(Collectives, AReduceWritesTheSumAtTheRootOnly) {
  run_all([](Collective& collective, Stream& stream, std::size_t count) {
    const auto [rank, ranks] = collective.world();
    for (std::int32_t root = 0; root < ranks; ++root) {
      std::vector<float> values = elements(rank, count);
      collective.reduce_sum({values.data(), count}, root, stream);
      EXPECT_EQ(values, rank == root ? sums(ranks, count) : elements(rank, count))
          << "root " << root << ", rank " << rank;
    }
  });
}

TEST_P(Collectives, ABroadcastLeavesTheRootsValuesOnAllRanks) {
  run_all([](Collective& collective, Stream& stream, std::size_t count) {
    const auto [rank, ranks] = collective.world();
    for (std::int32_t root = 0; root < ranks; ++root) {
      std::vector<float> values = elements(rank, count);
      collective.broadcast({values.data(), count}, root, stream);
      EXPECT_EQ(values, elements(root, count)) << "root " << root << ", rank " << rank;
    }
  });
}

TEST_P(Collectives, AStopFreesTheRanksThatWait) {
  std::stop_source stop;
  const std::int32_t ranks = 2 * GetParam().threads;
  EXPECT_THROW(run(
                   ranks,
                   [&](Collective& collective, Stream& stream) {
                     if (collective.world().rank == ranks - 1) {  // does not take part
                       stop.request_stop();
                       return;
                     }
                     float value = 1;
                     collective.all_reduce_sum({&value, 1}, stream);
                   },
                   stop.get_token()),
               Error);
}

/// The slowest rank's stream delays the others' next work, for any root and any thread.
TEST_P(Collectives, StreamsMeetInEveryCall) {
  VirtualClock clock;
  HostDevice device(clock);
  const Time begin = clock.now();
  const std::int32_t one = GetParam().threads, ranks = 3 * one;
  Group group(GetParam(), ranks, device, clock);
  run_ranks(
      ranks,
      [&](std::int32_t rank) {
        const std::unique_ptr<Collective> collective = group.join(rank);
        const std::unique_ptr<Stream> stream = device.make_stream();
        auto* const timeline = static_cast<Timeline*>(stream->native());
        float value = 1;
        Time expected = begin;
        const auto delay = [&](std::int32_t slowest) {
          if (rank == slowest) timeline->occupy(1s);
          expected += 1s;
        };
        for (std::int32_t thread = 0; thread < one; ++thread) {
          delay(2 * one + thread);
          collective->all_reduce_sum({}, *stream);
          EXPECT_EQ(timeline->free_at(), expected);
          delay(one + thread);
          collective->broadcast({&value, 1}, 0, *stream);
          EXPECT_EQ(timeline->free_at(), expected);
          delay(2 * one + thread);
          collective->broadcast({}, 0, *stream);
          EXPECT_EQ(timeline->free_at(), expected);
          delay(thread);
          collective->reduce_sum({&value, 1}, 2 * one, *stream);
          EXPECT_EQ(timeline->free_at(), expected);
        }
      },
      &clock);
}

INSTANTIATE_TEST_SUITE_P(Of, Collectives,
                         testing::Values(Exchange{"Threads", 1}, Exchange{"Links", 1, true},
                                         Exchange{"ProcessesOfOneThread", 1, false, true},
                                         Exchange{"ProcessesOfTwoThreads", 2, false, true}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ThreadsCollective, RoundsAsIf16BitsWereMovedAndCountsWhatOverflows) {
  SteadyClock clock;
  HostDevice device(clock);
  Device* const devices[] = {&device, &device, &device};
  Counter nonfinite;
  collectives::ThreadsGroup group(devices, clock, {},
                                  {.wire = WireFormat::bf16, .nonfinite = &nonfinite});
  EXPECT_NE(group.how().find("bf16"), std::string::npos);
  EXPECT_EQ(collectives::ThreadsGroup(devices, clock, {}).how(), "");
  run_ranks(3, [&](std::int32_t rank) {
    std::vector<float> values(1001, 1.0F + 0x1p-9F);  // bf16 rounds it to 1
    values[1000] = rank == 2 ? std::numeric_limits<float>::infinity() : 0;
    const std::unique_ptr<Stream> stream = device.make_stream();
    group.join(rank)->all_reduce_sum({values.data(), values.size()}, *stream);
    EXPECT_EQ(values[0], 3);
    EXPECT_EQ(values[999], 3);
    EXPECT_EQ(values[1000], std::numeric_limits<float>::infinity());
  });
  EXPECT_EQ(nonfinite.value(), 1);
}

}  // namespace
}  // namespace penstock
