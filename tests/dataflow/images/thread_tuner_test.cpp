// SPDX-License-Identifier: Apache-2.0
// The choice of threads, with a simulated clock, a producer whose rate depends on its threads and
// readers of a given rate; and in a pool of real threads.
#include "dataflow/images/thread_tuner.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "dataflow/host_device.h"
#include "dataflow/images/decode_pool.h"
#include "tests/dataflow/images/index_decoder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// A batch takes `work` on one thread, and a reader takes `step`.
class ThreadTunerTest : public testing::Test {
 protected:
  struct Chosen {
    std::int32_t threads = 0;
    bool settled = false;
    std::string note;
  };

  Chosen choose(Nanoseconds work, Nanoseconds step, std::int32_t most, std::size_t readers = 1,
                std::size_t slots = 3, int batches = 2000) {
    VirtualClock clock;
    HostDevice device(clock);
    const std::vector<Device*> devices(readers, &device);
    BatchRing ring(kSpec, slots, device, MemoryKind::host, devices, Order::relaxed, clock);
    Probe probe;
    ThreadTuner tuner(most, probe);
    tuner.begin(ring);
    std::vector<std::jthread> threads;
    {
      Clock::Participant self(clock);  // time does not pass before all are here
      for (std::size_t reader = 0; reader < readers; ++reader) {
        threads.emplace_back([&, reader, participant = Clock::Participant(clock)] {
          while (const ReadLease lease = ring.next(reader, {})) {
            clock.sleep_until(clock.now() + step);
          }
        });
      }
      std::int32_t running = 1;
      for (int batch = 0; batch < batches; ++batch) {
        WriteLease lease = ring.acquire({});
        clock.sleep_until(clock.now() + work / running);
        std::move(lease).publish();
        running = tuner.observe(clock.now());
      }
      ring.close();
    }
    threads.clear();
    const bool settled = tuner.is_settled();
    const std::int32_t chosen = tuner.settle();
    return {chosen, settled, probe.notes().empty() ? "" : probe.notes().front()};
  }
};

TEST_F(ThreadTunerTest, TakesTheFewestThreadsWithWhichReadersDoNotWait) {
  for (const auto& [work, needed] :
       {std::pair{4ms, 1}, {10ms, 1}, {11ms, 2}, {20ms, 2}, {34ms, 4}, {70ms, 7}, {155ms, 16}}) {
    const Chosen chosen = choose(work, 10ms, 64);
    EXPECT_TRUE(chosen.settled) << work.count();
    EXPECT_EQ(chosen.threads, needed) << work.count() << " ms: " << chosen.note;
    EXPECT_TRUE(says(chosen.note, "decode threads: " + std::to_string(needed) +
                                      " (auto: readers wait "
                                      "for "));
  }
}

TEST_F(ThreadTunerTest, StopsWhereThereAreNoMoreThreads) {
  const Chosen chosen = choose(100ms, 10ms, 5);
  EXPECT_TRUE(chosen.settled);
  EXPECT_EQ(chosen.threads, 5);
  EXPECT_EQ(chosen.note,
            "decode threads: 5 (auto: readers wait for 50.0 % of the time, and all threads are in "
            "use; 60.0 % with 4)");
}

TEST_F(ThreadTunerTest, CountsWaitsOfAllReaders) {
  EXPECT_EQ(choose(24ms, 20ms, 64, 2).threads, 3);  // two readers take a batch every 10 ms
  EXPECT_EQ(choose(55ms, 30ms, 64, 3, 8).threads, 6);
}

TEST_F(ThreadTunerTest, AReserveHidesNothing) {
  // Slots that are full at the end of the first interval feed the reader for hundreds of batches.
  EXPECT_EQ(choose(11ms, 10ms, 64, 1, 40).threads, 2);
}

TEST_F(ThreadTunerTest, WhatIsNotSettledStaysAsItIs) {
  const Chosen chosen = choose(70ms, 10ms, 64, 1, 3, 25);
  EXPECT_FALSE(chosen.settled);
  EXPECT_EQ(chosen.note,
            "decode threads: 2 (auto: not settled when the window began; 85.7 % with 1)");
}

// ---- a pool of real threads -------------------------------------------------

/// Runs a pool of at most four threads until it has settled, and then some more batches. Returns
/// the number of threads that decoded something.
std::int64_t threads_of_pool(Nanoseconds decoding, Nanoseconds reading, Probe& probe) {
  SteadyClock clock;
  HostDevice device(clock);
  Device* readers[] = {&device};
  BatchRing ring(kSpec, 3, device, MemoryKind::host, readers, Order::relaxed, clock);
  CountingSource source(1000, -1);
  const auto slowly = [&](const Sample&) { std::this_thread::sleep_for(decoding); };
  DecodePool pool(
      {.threads = 4, .choose_threads = true}, source,
      [&] { return std::make_unique<IndexDecoder>(slowly); }, clock, probe);
  std::stop_source stop;
  const std::jthread reader([&] {
    const Time end = clock.now() + 20s;
    for (int left = 20; left > 0 && clock.now() < end; left -= pool.is_settled()) {
      if (const ReadLease lease = ring.next(0, {}); lease) std::this_thread::sleep_for(reading);
    }
    stop.request_stop();
  });
  pool.run(ring, stop.get_token());
  EXPECT_TRUE(pool.is_settled());
  pool.settle();
  return probe.counter("decode_threads").value();
}

TEST(ThreadsOfAPool, OneIsEnoughForAReaderThatTakesItsTime) {
  // A machine that stalls makes the decoder slow, so the test tries again.
  for (int tries = 4; tries >= 0; --tries) {
    Probe probe;
    if (threads_of_pool(100us, 20ms, probe) != 1 && tries > 0) continue;
    EXPECT_EQ(probe.counter("decode_threads").value(), 1);
    EXPECT_EQ(probe.stages().at(1).stage.threads, 1) << "what did not run is none of the stage's";
    EXPECT_EQ(probe.facts().at("decode_threads_chosen"), 1);
    EXPECT_EQ(probe.facts().at("decode_threads_most"), 4);
    break;
  }
}

TEST(ThreadsOfAPool, AllRunForAReaderThatAlwaysWaits) {
  Probe probe;
  EXPECT_EQ(threads_of_pool(10ms, 0ms, probe), 4);
  EXPECT_EQ(probe.stages().at(1).stage.threads, 4);
}

}  // namespace
}  // namespace penstock
