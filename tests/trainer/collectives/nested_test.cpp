// SPDX-License-Identifier: Apache-2.0
// Tests ranks that are threads of several processes, with the processes emulated by threads.
#include "trainer/collectives/nested.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/rank_threads.h"
#include "trainer/collectives/threads.h"

namespace penstock {
namespace {

class NestedRanks : public ::testing::Test {
 protected:
  /// Runs `body` for each rank of that number of processes with that number of threads each.
  void run(std::int32_t processes, std::int32_t threads,
           const std::function<void(Collective&, Stream&)>& body, std::stop_token stop = {}) {
    const auto devices = [this](std::int32_t count) {
      return std::vector<Device*>(static_cast<std::size_t>(count), &device_);
    };
    collectives::ThreadsGroup between(devices(processes), clock_, stop);
    run_ranks(processes, [&](std::int32_t process) {
      const std::unique_ptr<Collective> across = between.join(process);
      const std::vector<Device*> mine = devices(threads);
      collectives::NestedGroup group(
          threads > 1 ? std::make_unique<collectives::ThreadsGroup>(mine, clock_, stop) : nullptr,
          mine, *across);
      run_ranks(threads, [&](std::int32_t thread) {
        const auto collective = group.join(process * threads + thread);
        const World world = collective->world();
        EXPECT_EQ(world.rank, process * threads + thread);
        EXPECT_EQ(world.size, processes * threads);
        EXPECT_TRUE(collective->recordable());
        body(*collective, *device_.make_stream());
      });
    });
  }
  void run_all(const std::function<void(Collective&, Stream&)>& body) {
    for (const std::int32_t processes : {1, 2, 3}) {
      for (const std::int32_t threads : {1, 2, 3}) {
        SCOPED_TRACE(std::to_string(processes) + " processes of " + std::to_string(threads));
        run(processes, threads, body);
      }
    }
  }
  /// A rank's own values; sums over a few ranks are exact.
  static std::vector<float> mine(std::int32_t rank, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(10 * (rank + 1)) + static_cast<float>(i % 7);
    }
    return values;
  }
  static std::vector<float> sum(std::int32_t ranks, std::size_t count) {
    std::vector<float> values(count);
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const std::vector<float> one = mine(rank, count);
      for (std::size_t i = 0; i < count; ++i) values[i] += one[i];
    }
    return values;
  }
  static constexpr std::size_t kCounts[] = {1, 5, 1000, 3};

  SteadyClock clock_;
  HostDevice device_{clock_};
};

TEST_F(NestedRanks, AllGetTheSum) {
  run_all([](Collective& collective, Stream& stream) {
    const World world = collective.world();
    for (const std::size_t count : kCounts) {
      std::vector<float> values = mine(world.rank, count);
      collective.all_reduce_sum({values.data(), count}, stream);
      EXPECT_EQ(values, sum(world.size, count));
    }
    collective.all_reduce_sum({}, stream);
  });
}

TEST_F(NestedRanks, ARootGetsTheSumAndTheOthersKeepTheirs) {
  run_all([](Collective& collective, Stream& stream) {
    const World world = collective.world();
    for (std::int32_t root = 0; root < world.size; ++root) {
      for (const std::size_t count : kCounts) {
        std::vector<float> values = mine(world.rank, count);
        collective.reduce_sum({values.data(), count}, root, stream);
        EXPECT_EQ(values, world.rank == root ? sum(world.size, count) : mine(world.rank, count))
            << "root " << root << ", rank " << world.rank;
      }
    }
  });
}

TEST_F(NestedRanks, AllGetWhatTheRootHas) {
  run_all([](Collective& collective, Stream& stream) {
    const World world = collective.world();
    for (std::int32_t root = 0; root < world.size; ++root) {
      for (const std::size_t count : kCounts) {
        std::vector<float> values = mine(world.rank, count);
        collective.broadcast({values.data(), count}, root, stream);
        EXPECT_EQ(values, mine(root, count)) << "root " << root << ", rank " << world.rank;
      }
    }
  });
}

TEST_F(NestedRanks, AStopFreesAllThatWait) {
  std::stop_source stop;
  EXPECT_THROW(run(
                   2, 2,
                   [&](Collective& collective, Stream& stream) {
                     if (collective.world().rank == 3) {  // does not join
                       stop.request_stop();
                       return;
                     }
                     float value = 1;
                     collective.all_reduce_sum({&value, 1}, stream);
                   },
                   stop.get_token()),
               Error);
}

}  // namespace
}  // namespace penstock
