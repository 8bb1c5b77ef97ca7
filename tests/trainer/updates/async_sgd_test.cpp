// SPDX-License-Identifier: Apache-2.0
// Tests pair averaging, step by step in a scripted order, against its definition in double. No rank
// waits in a step, so one thread runs the steps of all ranks in the order of the script.
#include "trainer/updates/async_sgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/update_ranks.h"

namespace penstock {
namespace {

using Counts = std::map<std::string, std::int64_t>;
/// The rank whose model a rank reads in a step.
using Peers = std::function<std::int32_t(std::int32_t rank, std::int64_t step)>;

/// The algorithm for one element of each rank's weights.
class Definition {
 public:
  Definition(std::int32_t ranks, std::size_t element, bool prefetch, Peers peers)
      : element_(element), prefetch_(prefetch), peers_(std::move(peers)) {
    Model first{quadratic_start(0, element), quadratic_start(0, element), 0, {}};
    models_.assign(static_cast<std::size_t>(ranks), first);
    for (std::int32_t rank = 0; prefetch && rank < ranks; ++rank) fetch(rank);
  }
  void step(std::int32_t rank) {
    Model& mine = models_[static_cast<std::size_t>(rank)];
    const double gradient = quadratic_gradient(mine.weight, rank, mine.updates, element_);
    if (!prefetch_) fetch(rank);
    mine.weight = (mine.weight + mine.fetched.weight) / 2 - UpdateRanks::kRate * gradient;
    const std::int64_t staleness = mine.updates - mine.fetched.version;
    ++staleness_[staleness < 0 ? "reads_ahead_by_" + std::to_string(-staleness)
                               : "reads_stale_by_" + std::to_string(staleness)];
    mine.published = mine.weight;
    ++mine.updates;
    if (prefetch_) fetch(rank);
  }
  double weight(std::int32_t rank) const { return models_[static_cast<std::size_t>(rank)].weight; }
  const Counts& staleness() const { return staleness_; }

 private:
  struct Fetched {
    double weight = 0;
    std::int64_t version = 0;
  };
  struct Model {
    double weight, published;
    std::int64_t updates;
    Fetched fetched;
  };
  void fetch(std::int32_t rank) {
    Model& mine = models_[static_cast<std::size_t>(rank)];
    const Model& other = models_[static_cast<std::size_t>(peers_(rank, mine.updates))];
    mine.fetched = {other.published, other.updates};
  }

  const std::size_t element_;
  const bool prefetch_;
  const Peers peers_;
  std::vector<Model> models_;
  Counts staleness_;
};

/// Forwards models and counts the reads that have ended. A test can hold reads back or make them
/// fail.
class WatchedStore final : public cluster::ModelStore {
 public:
  explicit WatchedStore(cluster::ModelStore& models) : models_(models) {}
  void publish(std::int32_t rank, std::int64_t version, const Tensor& weights,
               Stream& stream) override {
    models_.publish(rank, version, weights, stream);
  }
  std::optional<std::int64_t> read(std::int32_t reader, std::int32_t owner, const Tensor& into,
                                   Stream& stream) override {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    const auto version = models_.read(reader, owner, into, stream);
    ++ended_;
    changed_.notify_all();
    if (fails_) throw Error("the other rank is gone");
    return version;
  }
  void await_begun(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ == count; });
  }
  void await_ended(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == count; });
  }
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    fails_ = true;
  }
  int ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  cluster::ModelStore& models_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0, ended_ = 0;
  bool held_ = false, fails_ = false;
};

class AsyncSgd : public ::testing::Test {
 protected:
  /// Runs the scripted steps, each of one rank, and compares everything with the definition.
  void expect(std::int32_t ranks, const std::vector<std::int32_t>& script, bool prefetch,
              const Peers& peers) {
    std::optional<WatchedStore> store;
    UpdateRanks run(ranks, "async-sgd", make_watched(prefetch, peers, store), clock_);
    int reads = prefetch ? ranks : 0;
    for (const std::int32_t rank : script) {
      store->await_ended(reads);  // prefetch must read the models that exist after the step before
      run.step(rank);
      ++reads;
    }
    store->await_ended(reads);
    for (std::size_t element = 0; element < kQuadraticElements; ++element) {
      Definition definition(ranks, element, prefetch, peers);
      for (const std::int32_t rank : script) definition.step(rank);
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const double expected = definition.weight(rank);
        EXPECT_NEAR(run.weights(rank)[element], expected, 2e-6 * (1 + std::abs(expected)))
            << ranks << " ranks, rank " << rank << ", element " << element;
      }
      if (element > 0) continue;
      Counts counted;
      for (const auto& [name, count] : run.probe().values()) {
        if (count > 0) counted[name] = count;
      }
      EXPECT_EQ(counted, definition.staleness());
    }
  }
  UpdateRanks::Make make_watched(bool prefetch, const Peers& peers,
                                 std::optional<WatchedStore>& store) {
    return
        [this, prefetch, peers, &store](const UpdateContext& context, cluster::ModelStore* models) {
          if (!store) store.emplace(*models);
          const std::int32_t rank = context.collective.world().rank;
          return updates::make_pair_averaging(
              context, {*store, clock_},
              {prefetch, [rank, peers](std::int64_t step) { return peers(rank, step); }});
        };
  }
  void expect_both(std::int32_t ranks, const std::vector<std::int32_t>& script,
                   const Peers& peers) {
    for (const bool prefetch : {false, true}) {
      SCOPED_TRACE(prefetch ? "prefetched" : "read in the step");
      expect(ranks, script, prefetch, peers);
    }
  }

  SteadyClock clock_;
};

TEST_F(AsyncSgd, TwoRanksInTurnFollowTheDefinition) {
  expect_both(2, {0, 1, 0, 1, 0, 1, 0, 1},
              [](std::int32_t rank, std::int64_t) { return 1 - rank; });
}

TEST_F(AsyncSgd, ARankThatRunsAheadReadsOldModelsAndTheOtherNewOnes) {
  expect_both(2, {0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0},
              [](std::int32_t rank, std::int64_t) { return 1 - rank; });
}

TEST_F(AsyncSgd, ThreeAndFourRanksWithScriptedPeersFollowTheDefinition) {
  const std::vector<std::vector<std::int32_t>> peers{{1, 2, 2}, {2, 0, 2}, {0, 1, 0}};
  expect_both(3, {2, 0, 1, 1, 0, 2, 2, 2, 0, 1, 0}, [&](std::int32_t rank, std::int64_t step) {
    return peers[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step % 3)];
  });
  expect_both(4, {0, 1, 2, 3, 3, 2, 1, 0, 0, 0, 3, 1, 2, 3},
              [](std::int32_t rank, std::int64_t step) {
                return static_cast<std::int32_t>((rank + 1 + step % 3) % 4);
              });
}

TEST_F(AsyncSgd, APrefetchedModelIsReadWhileTheRankComputes) {
  std::optional<WatchedStore> store;
  const Peers other = [](std::int32_t rank, std::int64_t) { return 1 - rank; };
  UpdateRanks run(2, "async-sgd", make_watched(true, other, store), clock_);
  store->await_ended(2);
  store->hold(true);
  run.step(0);  // begins to read, and returns
  store->await_begun(3);
  EXPECT_EQ(store->ended(), 2);
  store->hold(false);
  run.step(0);
  store->await_ended(4);
}

TEST_F(AsyncSgd, APrefetchThatFailsFailsTheStepThatNeedsIt) {
  std::optional<WatchedStore> store;
  const Peers other = [](std::int32_t rank, std::int64_t) { return 1 - rank; };
  UpdateRanks run(2, "async-sgd", make_watched(true, other, store), clock_);
  store->await_ended(2);
  store->fail();
  run.step(0);
  EXPECT_THROW(run.step(0), Error);
}

TEST_F(AsyncSgd, EntryReadsThePeersOfItsRule) {
  for (const auto& [name, rule] : {std::pair("uniform", updates::PeerRule::uniform),
                                   {"kungfu", updates::PeerRule::kungfu},
                                   {"round-robin", updates::PeerRule::round_robin}}) {
    constexpr std::int32_t kRanks = 3;
    const std::vector<std::int32_t> script{0, 2, 1, 1, 0, 2, 2, 1, 0, 0};
    UpdateRanks run(kRanks, std::string("async-sgd:peer=") + name, clock_);
    for (const std::int32_t rank : script) run.step(rank);
    Definition definition(kRanks, 4, false, [rule = rule](std::int32_t rank, std::int64_t step) {
      return updates::choose_peer(rule, {rank, kRanks}, 1, step);
    });
    for (const std::int32_t rank : script) definition.step(rank);
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_NEAR(run.weights(rank)[4], definition.weight(rank), 1e-5) << name;
    }
  }
}

TEST_F(AsyncSgd, StalenessBeyondTheHistogramIsCountedAtItsEnd) {
  UpdateRanks run(2, "async-sgd", clock_);
  for (int step = 0; step < 12; ++step) run.step(0);  // reads version 0 every time
  run.step(1);                                        // reads version 12 at step 0
  const Counts counted = run.probe().values();
  EXPECT_EQ(counted.at("reads_stale_by_7"), 1);
  EXPECT_EQ(counted.at("reads_stale_by_8"), 4);  // reads of versions 8, 9, 10 and 11
  EXPECT_EQ(counted.at("reads_ahead_by_8"), 1);
}

TEST_F(AsyncSgd, AloneItIsGradientDescent) {
  UpdateRanks run(1, "async-sgd", clock_), plain(1, "independent", clock_);
  run.steps(5);
  plain.steps(5);
  EXPECT_EQ(run.weights(0), plain.weights(0));
}

TEST_F(AsyncSgd, RanksThatRunFreelyEndNearTheCommonMinimum) {
  for (const std::int32_t ranks : {2, 3, 4}) {
    for (const char* update : {"async-sgd", "async-sgd:prefetch=true"}) {
      UpdateRanks run(ranks, update, clock_);
      constexpr std::int32_t kSteps = 200;
      run.steps(kSteps);
      std::int64_t reads = 0;
      for (const auto& [name, count] : run.probe().values()) {
        EXPECT_GT(count, 0) << name;  // a counter exists only if it is above 0
        reads += count;
      }
      EXPECT_EQ(reads, ranks * kSteps);
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        for (const float weight : run.weights(rank)) {
          // Targets are in [-1, 4.5]. Averages of contractions towards them stay in that range.
          EXPECT_GT(weight, -1.01F);
          EXPECT_LT(weight, 4.51F);
        }
      }
    }
  }
}

TEST_F(AsyncSgd, WithoutAStoreItSaysWhatToUseInstead) {
  const auto make = [](const UpdateContext& context, cluster::ModelStore*) {
    return find_entry(update_table(), "async-sgd").make(context);
  };
  EXPECT_THROW(UpdateRanks(2, "async-sgd", make, clock_), Unavailable);
  EXPECT_THROW(UpdateRanks(2, "async-sgd:peer=left", clock_), ConfigError);
}

TEST(PeerChoice, IsNeverOneselfAndReachesEveryOther) {
  for (const updates::PeerRule rule :
       {updates::PeerRule::uniform, updates::PeerRule::kungfu, updates::PeerRule::round_robin}) {
    for (const std::int32_t size : {2, 3, 4, 7}) {
      for (std::int32_t rank = 0; rank < size; ++rank) {
        std::vector<int> drawn(static_cast<std::size_t>(size));
        for (std::int64_t step = 0; step < 600; ++step) {
          ++drawn[static_cast<std::size_t>(updates::choose_peer(rule, {rank, size}, 1, step))];
        }
        for (std::int32_t other = 0; other < size; ++other) {
          EXPECT_EQ(drawn[static_cast<std::size_t>(other)] == 0, other == rank);
        }
      }
    }
  }
}

TEST(PeerChoice, SharesFollowTheRule) {
  constexpr std::int32_t kSize = 4, kRank = 1;
  constexpr int kSteps = 40000;
  const auto shares = [](updates::PeerRule rule) {
    std::vector<double> drawn(kSize);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      drawn[static_cast<std::size_t>(updates::choose_peer(rule, {kRank, kSize}, 7, step))] +=
          1. / kSteps;
    }
    return drawn;
  };
  constexpr double kFourSigma = 4 * 0.0025;  // sqrt(0.25 / 40000)
  const std::vector<double> uniform = shares(updates::PeerRule::uniform),
                            kungfu = shares(updates::PeerRule::kungfu);
  for (const std::size_t other : {0U, 2U, 3U}) {
    EXPECT_NEAR(uniform[other], 1. / 3, kFourSigma) << other;
    EXPECT_NEAR(kungfu[other], other == kRank + 1 ? 0.5 : 0.25, kFourSigma) << other;
  }
  EXPECT_EQ(updates::choose_peer(updates::PeerRule::round_robin, {kRank, kSize}, 7, 0), 2);
  EXPECT_EQ(updates::choose_peer(updates::PeerRule::round_robin, {kRank, kSize}, 7, 2), 0);
  EXPECT_EQ(updates::choose_peer(updates::PeerRule::round_robin, {kRank, kSize}, 7, 3), 2);
}

}  // namespace
}  // namespace penstock
