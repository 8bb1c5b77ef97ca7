// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/rank_threads.h"
#include "trainer/collectives/threads.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST(ThreadsCollective, SumsAnyCountOverAnyNumberOfRanks) {
  SteadyClock clock;
  HostDevice device(clock);
  for (const std::int32_t ranks : {1, 2, 3, 4}) {
    const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device);
    collectives::ThreadsGroup group(devices, clock, {});
    for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 1000U, 4099U}) {
      run_ranks(ranks, [&](std::int32_t rank) {
        const std::unique_ptr<Collective> collective = group.join(rank);
        const std::unique_ptr<Stream> stream = device.make_stream();
        std::vector<float> values(count);
        for (int round = 0; round < 3; ++round) {
          for (std::size_t i = 0; i < count; ++i) {
            values[i] = static_cast<float>((rank + 1) * 10 + static_cast<int>(i % 100) + round);
          }
          collective->all_reduce_sum({values.data(), count}, *stream);
          for (std::size_t i = 0; i < count; ++i) {
            const int expected =
                10 * ranks * (ranks + 1) / 2 + ranks * (static_cast<int>(i % 100) + round);
            ASSERT_EQ(values[i], static_cast<float>(expected)) << ranks << " ranks, element " << i;
          }
        }
      });
    }
  }
}

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

TEST(ThreadsCollective, TheSumOfAReduceIsAtTheRootAndABroadcastIsTheRoots) {
  SteadyClock clock;
  HostDevice device(clock);
  Device* const devices[] = {&device, &device, &device};
  collectives::ThreadsGroup group(devices, clock, {});
  run_ranks(3, [&](std::int32_t rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    const std::unique_ptr<Stream> stream = device.make_stream();
    for (std::int32_t root = 0; root < 3; ++root) {
      std::vector<float> values(2001, static_cast<float>(rank + 1));
      collective->reduce_sum({values.data(), values.size()}, root, *stream);
      EXPECT_EQ(values, std::vector<float>(2001, rank == root ? 6 : static_cast<float>(rank + 1)));
      collective->broadcast({values.data(), values.size()}, root, *stream);
      EXPECT_EQ(values, std::vector<float>(2001, 6));
    }
  });
}

TEST(ThreadsCollective, StreamsMeet) {
  // The stream of the slower rank delays the other rank's next work.
  SteadyClock clock;
  HostDevice device(clock);
  Device* const devices[] = {&device, &device};
  collectives::ThreadsGroup group(devices, clock, {});
  const Time late = clock.now() + 1h;
  run_ranks(2, [&](std::int32_t rank) {
    const std::unique_ptr<Collective> collective = group.join(rank);
    const std::unique_ptr<Stream> stream = device.make_stream();
    auto* timeline = static_cast<Timeline*>(stream->native());
    if (rank == 1) timeline->hold_until(late);
    collective->all_reduce_sum({}, *stream);
    EXPECT_EQ(timeline->free_at(), late) << "rank " << rank;
  });
}

TEST(ThreadsCollective, AStopFreesTheRanksThatWait) {
  SteadyClock clock;
  HostDevice device(clock);
  Device* const devices[] = {&device, &device};
  std::stop_source stop;
  collectives::ThreadsGroup group(devices, clock, stop.get_token());
  std::future<void> waiting = std::async(std::launch::async, [&] {
    const std::unique_ptr<Stream> stream = device.make_stream();
    group.join(0)->all_reduce_sum({}, *stream);
  });
  stop.request_stop();
  ASSERT_EQ(waiting.wait_for(5s), std::future_status::ready);
  EXPECT_THROW(waiting.get(), Error);
}

}  // namespace
}  // namespace penstock
