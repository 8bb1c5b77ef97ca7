// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/async_sgd.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "dataflow/probe.h"
#include "trainer/cluster/model_store.h"
#include "trainer/updates/arena_copy.h"

namespace penstock::updates {
namespace {

/// Reads another rank's model on a separate thread while the rank computes.
///
/// Thread-safety: the rank's thread calls begin and finish, alternately.
class ModelPrefetch {
 public:
  /// Needs the context's device.
  ModelPrefetch(const UpdateContext& context, const PeerModels& models)
      : reader_(context.collective.world().rank),
        models_(models.store),
        clock_(models.clock),
        stream_(context.device->make_stream()),
        free_(context.device->make_event()),
        done_(context.device->make_event()) {
    thread_ = std::jthread([this, participant = Clock::Participant(clock_)](
                               const std::stop_token& stop) { run(stop); });
  }

  /// Begins to copy the owner's newest model into `into`, after the work that is already enqueued
  /// on `stream`.
  void begin(std::int32_t owner, const Tensor& into, Stream& stream) {
    stream.record(*free_);
    const std::lock_guard lock(mutex_);
    PENSTOCK_ASSERT(!reading_);
    owner_ = owner;
    into_ = into;
    reading_ = true;
    clock_.wake(gate_);
  }
  /// Blocks until the copy is enqueued, makes `stream` wait for it, and returns the version.
  /// Nothing: the owner has not published. Rethrows the exception of the read.
  std::optional<std::int64_t> finish(Stream& stream) {
    std::unique_lock lock(mutex_);
    clock_.wait(lock, gate_, {}, [this] { return !reading_; });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    stream.wait_for(*done_);
    return version_;
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (clock_.wait(lock, gate_, stop, [this] { return reading_; }) && !stop.stop_requested()) {
      lock.unlock();
      std::optional<std::int64_t> version;
      std::exception_ptr failure;
      try {
        stream_->wait_for(*free_);
        version = models_.read(reader_, owner_, into_, *stream_);
        stream_->record(*done_);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      version_ = version;
      failure_ = failure;
      reading_ = false;
      clock_.wake(gate_);
    }
  }

  const std::int32_t reader_;
  cluster::ModelStore& models_;
  Clock& clock_;
  const std::unique_ptr<Stream> stream_;      // of the thread
  const std::unique_ptr<Event> free_, done_;  // on the rank's stream; on the thread's

  std::mutex mutex_;
  Gate gate_;
  // All below are protected by mutex_. While reading_ is set, only the thread changes them.
  bool reading_ = false;  // a read has begun and has not ended
  std::int32_t owner_ = 0;
  Tensor into_;
  std::optional<std::int64_t> version_;
  std::exception_ptr failure_;

  std::jthread thread_;  // last: it ends first, after a read in progress
};

/// Counts the staleness of the models that ranks averaged with.
class StalenessCounters {
 public:
  explicit StalenessCounters(Probe* probe) {
    if (probe == nullptr) return;
    for (std::int64_t staleness = -kMostStale; staleness <= kMostStale; ++staleness) {
      const std::string name = staleness < 0 ? fmt::format("reads_ahead_by_{}", -staleness)
                                             : fmt::format("reads_stale_by_{}", staleness);
      counters_[index(staleness)] = &probe->histogram_class(name);
    }
  }
  void add(std::int64_t staleness) noexcept {
    if (Counter* const counter = counters_[index(staleness)]) counter->add();
  }

 private:
  static std::size_t index(std::int64_t staleness) noexcept {
    return static_cast<std::size_t>(std::clamp(staleness, -kMostStale, kMostStale) + kMostStale);
  }
  std::array<Counter*, 2 * kMostStale + 1> counters_{};
};

class AsyncSgd final : public RankUpdate {
 public:
  AsyncSgd(const UpdateContext& context, const PeerModels& models, PairAveraging rule)
      : RankUpdate(context),
        world_(context.collective.world()),
        models_(models.store),
        rule_(std::move(rule)),
        staleness_(context.probe),
        other_(context) {
    if (rule_.prefetch && world_.size > 1) prefetch_.emplace(context, models);
  }

  /// Reads depend on the step, and on the models that others have published.
  bool recordable() const noexcept override { return false; }

  void start(Executable& executable, Stream& stream) override {
    const ParameterSet& set = executable.parameters();
    RankUpdate::start(executable, stream);
    if (world_.size == 1) return;
    models_.publish(world_.rank, 0, set.weights, stream);
    collective_.broadcast({}, 0, stream);  // meet: all ranks have published
    if (prefetch_) prefetch_->begin(peer(), other_.beside(set.weights), stream);
  }

  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    if (world_.size > 1) {
      const Tensor other = other_.beside(set.weights);
      average(
          set, other,
          prefetch_ ? prefetch_->finish(stream) : models_.read(world_.rank, peer(), other, stream),
          stream);
    }
    optimizer_.apply(set, 1, stream, result);
    ++updates_;
    if (world_.size == 1) return;
    models_.publish(world_.rank, updates_, set.weights, stream);
    if (prefetch_) prefetch_->begin(peer(), other_.beside(set.weights), stream);
  }

 private:
  std::int32_t peer() const {
    const std::int32_t peer = rule_.peer(updates_);
    PENSTOCK_ASSERT(peer != world_.rank && peer >= 0 && peer < world_.size);
    return peer;
  }
  void average(const ParameterSet& set, const Tensor& other, std::optional<std::int64_t> version,
               Stream& stream) {
    if (!version) throw Error("pair averaging found no model of another rank: none has started");
    optimizer_.average(set, other, 1, 0.5F, stream);
    staleness_.add(updates_ - *version);
  }

  const World world_;
  cluster::ModelStore& models_;
  const PairAveraging rule_;
  StalenessCounters staleness_;
  ArenaCopy other_;
  std::int64_t updates_ = 0;  ///< made by this rank
  std::optional<ModelPrefetch> prefetch_;
};

constexpr OptionValue kPeers[] = {
    {"uniform", "all other ranks equally often"},
    {"kungfu", "the right neighbour twice as often as any other rank, as in KungFu"},
    {"round-robin", "all other ranks in turn, from the right neighbour on"},
};
constexpr OptionSpec kOptions[] = {
    {"peer", "uniform", "rank whose model a step reads", kPeers},
    {"prefetch", "false", "read the model for the next step during this step"},
};

PeerRule parse_peer_rule(const std::string& text) {
  if (text == "uniform") return PeerRule::uniform;
  if (text == "kungfu") return PeerRule::kungfu;
  if (text == "round-robin") return PeerRule::round_robin;
  throw ConfigError("async-sgd:peer is '{}'; expected uniform, kungfu or round-robin", text);
}

}  // namespace

std::unique_ptr<UpdateStrategy> make_pair_averaging(const UpdateContext& context,
                                                    const PeerModels& models, PairAveraging rule) {
  return std::make_unique<AsyncSgd>(context, models, std::move(rule));
}

extern constinit const UpdateEntry async_sgd_update{
    .name = "async-sgd",
    .summary =
        "KungFu's pair averaging: each rank averages its model with one that another rank "
        "published; no rank waits",
    .agreement = Agreement::mixed,
    .steps_apart = [](const Options&, bool) { return true; },
    .options = kOptions,
    .make = [](const UpdateContext&) -> std::unique_ptr<UpdateStrategy> {
      throw Unavailable(
          "async-sgd reads other ranks' models, and these ranks cannot reach each other's; use "
          "sync-sgd or sma");
    },
    .make_reading =
        [](const UpdateContext& context, const PeerModels& models) {
          const PeerRule rule = parse_peer_rule(context.options.text("peer"));
          const auto peer = [rule, world = context.collective.world(), seed = models.seed](
                                std::int64_t step) { return choose_peer(rule, world, seed, step); };
          return make_pair_averaging(context, models, {context.options.flag("prefetch"), peer});
        },
};

}  // namespace penstock::updates
