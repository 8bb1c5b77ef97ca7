// SPDX-License-Identifier: Apache-2.0
// Producers in processes of their own whose memory is read where it lies: nothing is overwritten
// while a reader holds it, whatever becomes of whom.
#include <array>
#include <deque>

#include "tests/transport/feed.h"
#include "tests/transport/peer.h"

namespace penstock::transport {
namespace {

class ZmqLending : public ZmqConsume {
 protected:
  static constexpr std::size_t kSlots = 5;  // of the ring

  std::string options() const {
    return "credit=4,shared_memory=true,max_pool=256MiB,endpoint=" + endpoint();
  }
  std::vector<std::string> lend(std::int32_t producer, std::int32_t batches,
                                std::size_t frames = 8) const {
    return {"lend", endpoint(), std::to_string(producer), std::to_string(batches),
            std::to_string(frames)};
  }
};

TEST_F(ZmqLending, NothingIsOverwrittenWhileAReaderHoldsIt) {
  constexpr std::int32_t kBatches = 200;
  Feed feed(options(), kLarge, kSlots, true);
  Peer producer(lend(1, kBatches));
  Ledger accounts;
  std::array<ReadLease, 2> kept;  // all the time
  for (ReadLease& lease : kept) lease = feed.take();
  std::deque<ReadLease> held;
  for (std::int32_t batch = 2; batch < kBatches; ++batch) {
    held.push_back(feed.take());
    const std::optional<BatchName> name = name_of(kLarge, held.back().batch());
    ASSERT_TRUE(name);
    accounts.arrived(*name);
    // Two leases behind: the producer has filled what it has by then.
    if (held.size() < 3) continue;
    ASSERT_EQ(name_of(kLarge, held.front().batch()), (BatchName{1, batch - 2}));
    held.pop_front();
  }
  for (std::int32_t batch = 0; batch < 2; ++batch) {
    const ReadLease lease = std::move(kept[static_cast<std::size_t>(batch)]);
    const std::optional<BatchName> name = name_of(kLarge, lease.batch());
    ASSERT_EQ(name, (BatchName{1, batch}));
    accounts.arrived(*name);
  }
  EXPECT_LE(producer.lines(), static_cast<std::size_t>(kBatches));  // its leases are not back
  held.clear();
  ASSERT_TRUE(producer.await_lines(kBatches + 1));
  EXPECT_EQ(producer.wait().code, 0);
  feed.stop();
  accounts.expect_once(1, 0, kBatches);
  EXPECT_EQ(feed.counter("bytes_lent"), kBatches * static_cast<std::int64_t>(kLarge.pixel_bytes()));
  EXPECT_EQ(feed.counter("messages_rejected"), 0) << feed.all_notes();
  EXPECT_EQ(feed.counter("leases_cut_short"), 0) << feed.all_notes();
}

TEST_F(ZmqLending, AProducerThatIsKilledWhileItsBatchesAreRead) {
  constexpr std::int32_t kGood = 60;
  Feed feed(options(), kLarge, kSlots, true);
  Peer victim(lend(1, 1000));
  std::array<ReadLease, 3> kept;
  for (ReadLease& lease : kept) lease = feed.take();
  victim.kill_and_wait();
  const auto all_are_there = [&] {
    for (std::int32_t batch = 0; batch < 3; ++batch) {
      if (name_of(kLarge, kept[static_cast<std::size_t>(batch)].batch()) != BatchName{1, batch}) {
        return false;
      }
    }
    return true;
  };
  Peer good(lend(2, kGood));
  Ledger accounts;
  while (accounts.total_of(2) < kGood) {
    const std::optional<BatchName> name = feed.next();  // the first may be the victim's last ones
    ASSERT_TRUE(name);
    accounts.arrived(*name);
    ASSERT_TRUE(all_are_there());
  }
  ASSERT_TRUE(good.await_lines(kGood + 1));
  EXPECT_EQ(good.wait().code, 0);
  ASSERT_TRUE(await([&] { return feed.counter("producers_lost") == 1; }));
  EXPECT_GE(feed.counter("leases_cut_short"), 3);
  EXPECT_LE(feed.counter("leases_cut_short"), static_cast<std::int64_t>(kSlots));
  EXPECT_TRUE(says(feed.all_notes(), "are in its memory"));
  EXPECT_TRUE(all_are_there());
  feed.stop();
  EXPECT_TRUE(all_are_there());
  accounts.expect_once(2, 0, kGood);
  accounts.expect_none_twice();
  EXPECT_EQ(feed.counter("messages_rejected"), 0) << feed.all_notes();
}

}  // namespace
}  // namespace penstock::transport
