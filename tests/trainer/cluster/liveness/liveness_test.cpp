// SPDX-License-Identifier: Apache-2.0
// Tests liveness with ranks in one process, over real sockets.
#include "trainer/cluster/liveness/liveness.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "tests/support/patience.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// The messages and the ends of a run's ranks.
class Events {
 public:
  void told(std::int32_t rank, std::span<const liveness::LostRank> lost) {
    const std::lock_guard lock(mutex_);
    lines_.push_back("rank " + std::to_string(rank) + " says: " + liveness::to_text(lost));
    changed_.notify_all();
  }
  void ended(std::int32_t rank) {
    const std::lock_guard lock(mutex_);
    ended_.push_back(rank);
    changed_.notify_all();
  }
  /// The ranks that ended, sorted. Waits until there are `count`, at most 40 s.
  std::vector<std::int32_t> await_ends(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 40s, [&] { return ended_.size() >= count; });
    std::vector<std::int32_t> ended = ended_;
    std::sort(ended.begin(), ended.end());
    return ended;
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void said(const std::string& text) {
    const std::lock_guard lock(mutex_);
    said_.push_back(text);
    changed_.notify_all();
  }
  /// Waits until a message about waiting contains `text`.
  bool await_said(const std::string& text) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(
        lock, 20s, [&] { return std::find(said_.begin(), said_.end(), text) != said_.end(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_, said_;
  std::vector<std::int32_t> ended_;
};

/// Connects a rank that says hello and nothing more.
liveness::FrameSocket say_hello(std::int32_t rank, const std::string& hub,
                                std::string_view key = "secret") {
  liveness::FrameSocket socket;
  for (int tries = 0; tries < 500 && !socket.is_open(); ++tries) {
    socket = liveness::FrameSocket::connect(hub, 1s);
  }
  liveness::Frame hello;
  hello.kind = liveness::Frame::Kind::hello;
  hello.rank = rank;
  hello.pid = 4711;
  hello.key = liveness::padded(key);
  hello.host = liveness::padded("elsewhere");
  hello.phase = cluster::RankPhase::training;
  hello.step = 3;
  socket.send(hello);
  return socket;
}

class Ranks : public ::testing::TestWithParam<bool> {
 protected:
  explicit Ranks(std::int32_t size = 4) : lives_(size), progress_(size) {
    for (std::int32_t rank = 0; rank < size; ++rank) {
      if (GetParam()) {
        listeners_.push_back(liveness::FrameListener::tcp(true));
      } else {
        listeners_.push_back(liveness::FrameListener::local(
            "penstock test " + std::to_string(getpid()) + " rank " + std::to_string(rank)));
      }
      addresses_.push_back(listeners_.back().address());
    }
  }
  void start(std::int32_t rank, const liveness::RankDeadlines& deadlines = {}) {
    const auto at = static_cast<std::size_t>(rank);
    progress_[at] = std::make_unique<cluster::RankProgress>();
    lives_[at] = std::make_unique<liveness::Liveness>(
        liveness::LivenessPlan{
            .rank = rank,
            .size = static_cast<std::int32_t>(addresses_.size()),
            .place = {"here", getpid()},
            .key = "secret",
            .deadlines = deadlines,
            .addresses = addresses_,
            .say = [this](const std::string& text) { events_.said(text); },
            .tell = [this,
                     rank](std::span<const liveness::LostRank> lost) { events_.told(rank, lost); },
            .end = [this, rank] { events_.ended(rank); }},
        std::move(listeners_[at]), *progress_[at]);
  }

  Events events_;
  std::vector<liveness::FrameListener> listeners_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<liveness::Liveness>> lives_;
  std::vector<std::unique_ptr<cluster::RankProgress>> progress_;
};

TEST_P(Ranks, ThatEndOnTheirOwnAccountAreNotLost) {
  for (const std::int32_t rank : {0, 1, 2, 3}) start(rank);
  lives_[2]->leave();
  for (const std::size_t rank : {3U, 2U, 1U, 0U}) lives_[rank].reset();
  EXPECT_TRUE(events_.lines().empty()) << events_.lines().front();
  EXPECT_TRUE(events_.await_ends(0).empty());
}

TEST_P(Ranks, OneThatDiesIsNamedByRank0AndAllEnd) {
  for (const std::int32_t rank : {0, 1, 2}) start(rank);
  say_hello(3, addresses_[0]).close();
  EXPECT_EQ(events_.await_ends(3), (std::vector<std::int32_t>{0, 1, 2}));
  ASSERT_EQ(events_.lines().size(), 1U);
  EXPECT_EQ(events_.lines()[0],
            "rank 0 says: rank 3 (host elsewhere, pid 4711) was lost while joining the other "
            "ranks: its connection closed");
}

TEST_P(Ranks, ASilentRankIsNamed) {
  const liveness::RankDeadlines soon{.rendezvous = 60s, .silence = 3s, .goodbye = 1s};
  const liveness::FrameSocket silent = say_hello(3, addresses_[0]);
  for (const std::int32_t rank : {0, 1, 2}) start(rank, soon);
  EXPECT_EQ(events_.await_ends(3), (std::vector<std::int32_t>{0, 1, 2}));
  ASSERT_EQ(events_.lines().size(), 1U);
  EXPECT_NE(events_.lines()[0].find("rank 0 says: rank 3 (host elsewhere, pid 4711)"),
            std::string::npos);
  const std::string silent_for = ": silent for ";
  const std::size_t at = events_.lines()[0].find(silent_for);
  ASSERT_NE(at, std::string::npos) << events_.lines()[0];
  EXPECT_GE(std::stod(events_.lines()[0].substr(at + silent_for.size())), 3);
}

TEST_P(Ranks, ARankThatNeverJoinsIsNamed) {
  const liveness::RankDeadlines soon{.rendezvous = 1s, .silence = 30s, .goodbye = 1s};
  for (const std::int32_t rank : {1, 2}) start(rank);  // with a long timeout
  start(0, soon);
  EXPECT_EQ(events_.await_ends(3), (std::vector<std::int32_t>{0, 1, 2}));
  ASSERT_EQ(events_.lines().size(), 1U);
  EXPECT_NE(events_.lines()[0].find("rank 0 says: rank 3 was lost while joining"),
            std::string::npos)
      << events_.lines()[0];
}

TEST_P(Ranks, RanksThatJoinSlowlyAreReportedUntilAllAreHere) {
  for (const std::int32_t rank : {2, 0}) start(rank);
  EXPECT_TRUE(events_.await_said("waiting for ranks 1, 3 to join (2 of 4 are here)"));
  start(3);
  EXPECT_TRUE(events_.await_said("waiting for rank 1 to join (3 of 4 are here)"));
  start(1);
  for (const std::size_t rank : {3U, 2U, 1U, 0U}) lives_[rank].reset();
  EXPECT_TRUE(events_.lines().empty());
}

TEST_P(Ranks, ARankThatMissesAMeetingIsNamed) {
  for (const std::int32_t rank : {0, 1, 2, 3}) start(rank);
  for (const std::size_t rank : {0U, 1U, 3U}) {
    progress_[rank]->enter(cluster::RankPhase::training);
    progress_[rank]->begin_wait(std::chrono::steady_clock::now() + 1s);
  }
  EXPECT_EQ(events_.await_ends(4), (std::vector<std::int32_t>{0, 1, 2, 3}));
  ASSERT_EQ(events_.lines().size(), 1U);
  EXPECT_NE(events_.lines()[0].find("rank 0 says: rank 2 (host here"), std::string::npos);
  EXPECT_NE(events_.lines()[0].find("it is alive, but did not reach"), std::string::npos);
}

TEST_P(Ranks, TheLowestThatIsLeftNamesRank0) {
  liveness::FrameListener hub = std::move(listeners_[0]);
  for (const std::int32_t rank : {1, 2, 3}) start(rank);
  {
    std::vector<liveness::FrameSocket> accepted;  // rank 0 ends when all have connected
    ASSERT_TRUE(await([&] {
      liveness::FrameSocket socket = hub.accept();
      if (socket.is_open()) accepted.push_back(std::move(socket));
      return accepted.size() == 3;
    }));
  }
  EXPECT_EQ(events_.await_ends(3), (std::vector<std::int32_t>{1, 2, 3}));
  ASSERT_EQ(events_.lines().size(), 1U);
  EXPECT_EQ(events_.lines()[0].find("rank 1 says: rank 0 was lost"), 0U) << events_.lines()[0];
}

TEST_P(Ranks, StrangersAreNotHeard) {
  for (const std::int32_t rank : {0, 1, 2, 3}) start(rank);
  liveness::FrameSocket stranger = say_hello(3, addresses_[0], "guess");
  EXPECT_TRUE(await([&] {
    stranger.receive();
    return !stranger.is_open();
  }));
  liveness::FrameSocket noise = liveness::FrameSocket::connect(addresses_[0], 1s);
  EXPECT_EQ(write(noise.file(), std::string(1000, 'x').data(), 1000), 1000);
  for (const std::size_t rank : {3U, 2U, 1U, 0U}) lives_[rank].reset();
  EXPECT_TRUE(events_.lines().empty()) << events_.lines().front();
}

INSTANTIATE_TEST_SUITE_P(Ways, Ranks, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "tcp" : "local"; });

}  // namespace
}  // namespace penstock
