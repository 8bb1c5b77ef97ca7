// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <string>

#include "dataflow/error.h"
#include "tests/support/rank_threads.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"
#include "trainer/collectives/thread_links.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> room_for(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

TEST(ThreadLinks, MessagesArriveInTheOrderInWhichTheyWereSent) {
  SteadyClock clock;
  collectives::ThreadLinks links(2, clock, 1min, {});
  constexpr int kMessages = 1000;
  run_ranks(2, [&](std::int32_t rank) {
    const std::unique_ptr<collectives::Link> link = links.join(rank);
    for (int i = 0; i < kMessages; ++i) {
      int value = i;
      if (rank == 0) {
        link->send(1, bytes_of(value));
        value = -1;
      } else {
        value = -1;
        link->receive(0, room_for(value));
        ASSERT_EQ(value, i);
      }
    }
  });
}

TEST(ThreadLinks, RanksInARingSendAndReceiveAtOnce) {
  SteadyClock clock;
  for (const std::int32_t ranks : {2, 3, 8}) {
    collectives::ThreadLinks links(ranks, clock, 1min, {});
    run_ranks(ranks, [&, ranks = ranks](std::int32_t rank) {
      const std::unique_ptr<collectives::Link> link = links.join(rank);
      std::int32_t origin = rank;
      for (std::int32_t step = 0; step < ranks; ++step) {
        std::int32_t incoming = -1;
        link->send_receive((rank + 1) % ranks, bytes_of(origin), (rank + ranks - 1) % ranks,
                           room_for(incoming));
        origin = incoming;
        ASSERT_EQ(origin, (rank + 2 * ranks - step - 1) % ranks);
      }
    });
  }
}

TEST(ThreadLinks, AnEmptySpanIsNoMessage) {
  SteadyClock clock;
  collectives::ThreadLinks links(2, clock, 1min, {});
  const std::unique_ptr<collectives::Link> link = links.join(0);
  link->send(1, {});
  link->receive(1, {});
  link->send_receive(1, {}, 1, {});
  EXPECT_EQ(link->world().size, 2) << "nobody waited for rank 1, which is not there";
}

TEST(ThreadLinks, ADeadlineNamesThePeerThatWasWaitedFor) {
  VirtualClock clock;
  const Time begin = clock.now();
  std::array<std::string, 2> failures;
  collectives::ThreadLinks links(3, clock, 5min, {});
  run_ranks(
      2,
      [&](std::int32_t rank) {
        const std::unique_ptr<collectives::Link> link = links.join(rank);
        clock.sleep_until(begin + rank * 1min);
        failures[static_cast<std::size_t>(rank)] = thrown_by<TimeoutError>([&] {
          std::array<std::byte, 12> bytes{};
          if (rank == 0) link->receive(2, bytes);
          if (rank == 1) link->send(2, bytes);
        });
        EXPECT_EQ(clock.now(), begin + rank * 1min + 5min);
      },
      &clock);
  EXPECT_EQ(failures[0],
            "rank 0 waited 300 s to receive 12 bytes from rank 2; expected it to take part by "
            "then; see what rank 2 does, or allow more time");
  EXPECT_EQ(failures[1],
            "rank 1 waited 300 s to send 12 bytes to rank 2; expected it to take part by then; "
            "see what rank 2 does, or allow more time");
}

TEST(ThreadLinks, AStopFreesTheRanksThatWait) {
  SteadyClock clock;
  std::stop_source stop;
  collectives::ThreadLinks links(3, clock, 1h, stop.get_token());
  const auto waiting = [&](std::int32_t rank, const auto& call) {
    return std::async(std::launch::async, [&links, rank, call] {
      const std::unique_ptr<collectives::Link> link = links.join(rank);
      int value = 0;
      return thrown_by<Error>([&] { call(*link, value); });
    });
  };
  std::future<std::string> receiver =
      waiting(0, [](collectives::Link& link, int& value) { link.receive(2, room_for(value)); });
  std::future<std::string> both = waiting(1, [](collectives::Link& link, int& value) {
    const int sent = 0;
    link.send_receive(2, bytes_of(sent), 2, room_for(value));
  });
  stop.request_stop();
  ASSERT_EQ(receiver.wait_for(5s), std::future_status::ready);
  ASSERT_EQ(both.wait_for(5s), std::future_status::ready);
  EXPECT_EQ(receiver.get(),
            "rank 0 could not receive 4 bytes from rank 2: the exchange was abandoned, as the run "
            "is stopping");
  EXPECT_EQ(both.get(),
            "rank 1 could not receive 4 bytes from rank 2: the exchange was abandoned, as the run "
            "is stopping");
}

TEST(ThreadLinks, UnequalSizesAreRefusedByTheReceiver) {
  SteadyClock clock;
  collectives::ThreadLinks links(2, clock, 1min, {});
  std::string failure;
  run_ranks(2, [&](std::int32_t rank) {
    const std::unique_ptr<collectives::Link> link = links.join(rank);
    std::array<std::byte, 8> bytes{};
    if (rank == 0) link->send(1, bytes);
    if (rank == 1) failure = thrown_by<Error>([&] { link->receive(0, std::span(bytes).first(4)); });
  });
  EXPECT_EQ(failure,
            "rank 1 receives 4 bytes from rank 0, which sent 8; expected equal sizes; give all "
            "ranks the same model and flags");
}

}  // namespace
}  // namespace penstock
