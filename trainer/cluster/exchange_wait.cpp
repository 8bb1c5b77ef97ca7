// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/exchange_wait.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dataflow/error.h"

namespace penstock::cluster {
namespace {

class WatchedCollective final : public Collective {
 public:
  WatchedCollective(std::unique_ptr<Collective> inner, const StepPatience& patience,
                    RankProgress& progress, const Clock& clock)
      : inner_(std::move(inner)), patience_(patience), progress_(progress), clock_(clock) {}

  World world() const noexcept override { return inner_->world(); }
  bool recordable() const noexcept override { return inner_->recordable(); }
  bool overlaps() const noexcept override { return inner_->overlaps(); }
  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    const RankWait wait(&progress_, deadline());
    inner_->all_reduce_sum(tensor, stream);
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    const RankWait wait(&progress_, deadline());
    inner_->reduce_sum(tensor, root, stream);
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    const RankWait wait(&progress_, deadline());
    inner_->broadcast(tensor, root, stream);
  }

 private:
  Time deadline() const {
    const Nanoseconds median = progress_.median_step();
    return clock_.now() + (median == Nanoseconds{}
                               ? patience_.first_step
                               : std::max(patience_.step, StepPatience::kMedians * median));
  }

  const std::unique_ptr<Collective> inner_;
  const StepPatience patience_;
  RankProgress& progress_;
  const Clock& clock_;
};

class WatchedGroup final : public CollectiveGroup {
 public:
  WatchedGroup(std::unique_ptr<CollectiveGroup> inner, const StepPatience& patience,
               RankProgress& progress, const Clock& clock)
      : inner_(std::move(inner)), patience_(patience), progress_(progress), clock_(clock) {}
  std::unique_ptr<Collective> join(std::int32_t rank) override {
    return std::make_unique<WatchedCollective>(inner_->join(rank), patience_, progress_, clock_);
  }
  std::string how() const override { return inner_->how(); }

 private:
  const std::unique_ptr<CollectiveGroup> inner_;
  const StepPatience patience_;
  RankProgress& progress_;
  const Clock& clock_;
};

}  // namespace

void ExchangeWait::Attempt::check(Time now) {
  if (wait_.stopping_.stop_requested()) {
    last_moment_ = std::min(last_moment_, now + Processes::kGrace);
  }
  if (wait_.abandon_.stop_requested() || now >= last_moment_) {
    throw Error("the run is being stopped");
  }
  if (now >= deadline_) {
    throw TimeoutError(
        "rank {} waited {} s in the exchange for other ranks: one of them hangs, is stopped, or "
        "cannot be reached; see the messages of the launcher, or raise --timeout",
        wait_.rank_, wait_.patience_ / std::chrono::seconds(1));
  }
}

std::unique_ptr<CollectiveGroup> watch(std::unique_ptr<CollectiveGroup> group,
                                       const StepPatience& patience, RankProgress& progress,
                                       const Clock& clock) {
  return std::make_unique<WatchedGroup>(std::move(group), patience, progress, clock);
}

}  // namespace penstock::cluster
