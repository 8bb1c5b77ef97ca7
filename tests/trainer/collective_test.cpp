// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
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
    ThreadsGroup group(devices, clock, {});
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

TEST(ThreadsCollective, StreamsMeet) {
  // The stream of the slower rank holds back the other one's next work.
  SteadyClock clock;
  HostDevice device(clock);
  Device* const devices[] = {&device, &device};
  ThreadsGroup group(devices, clock, {});
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
  ThreadsGroup group(devices, clock, stop.get_token());
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
