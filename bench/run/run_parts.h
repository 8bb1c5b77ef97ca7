// SPDX-License-Identifier: Apache-2.0
// Makes all parts of one run, in order of dependence. RunSession owns the threads that run them.
//
//   feeder -> host ring -> stager -> device ring -> replica    (one stager, ring, replica per rank;
//                                                               loaders: one of each per rank)
//   device feeder (one per rank)  -> device ring -> replica
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/run/processes/run_exchange.h"
#include "bench/run/run_setup.h"
#include "bench/run/runner.h"
#include "bench/run/trace/trace.h"
#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/stager.h"
#include "feeders/feeder.h"
#include "trainer/checkpoint.h"
#include "trainer/cluster/model_store.h"
#include "trainer/collective.h"
#include "trainer/exchange.h"
#include "trainer/learning_rate.h"
#include "trainer/replica.h"

namespace penstock {

class RunParts {
 public:
  /// One rank: the parts from its device ring to its weights.
  struct Rank {
    std::unique_ptr<Device> device;
    std::unique_ptr<BatchRing> ring;
    std::unique_ptr<Feeder> feeder;  // if feeders fill device slots
    std::unique_ptr<Stager> stager;  // if feeders fill host slots
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<Collective> collective;
    std::unique_ptr<UpdateStrategy> update;
    std::unique_ptr<Replica> replica;
    Leg leg;
  };

  /// `clock`, the entries of `components` and `trace`, if not null, must outlive the parts. `stop`
  /// ends compilations with an Error; `abandon` lets ranks leave an exchange. Throws ConfigError,
  /// Unavailable, TimeoutError.
  RunParts(const RunConfig& typed, Clock& clock, const Runner::Components& components,
           std::stop_token stop, std::stop_token abandon, Trace* trace = nullptr);
  ~RunParts();

  double steps_per_epoch() const noexcept {
    return schedule.examples_per_epoch /
           static_cast<double>(setup.config.batch_size * all_devices(setup.config));
  }
  /// With the names that reports give them, upstream first.
  std::vector<std::pair<std::string, BatchRing*>> rings() const;
  std::vector<Feeder*> feeders() const;
  /// Batches published by the feeders so far.
  std::uint64_t published() const;
  /// Batches taken from the device rings so far.
  std::uint64_t taken() const;
  /// Exchange times so far, summed over the ranks.
  ExchangeTimes exchange_times() const;

  /// The description that a checkpoint of this run gets after `step` updates.
  CheckpointInfo checkpoint_info(std::int64_t step) const;
  /// Rank 0's loss scale, if it is adaptive. The device must be idle.
  std::optional<LossScale> loss_scale() const;

  /// How long the run trains, and how fast it learns.
  struct Schedule {
    double examples_per_epoch = 0;  ///< of the data, or ImageNet's if unknown
    LearningRatePlan learning_rates;
    std::int64_t first_step = 0;  ///< updates made before this run was resumed
  };
  /// What ranks and processes exchange through.
  struct Links {
    std::stop_source stopping;                    ///< requested when the run is ended from outside
    std::unique_ptr<Device> host;                 ///< of updates in host memory; null: none
    std::unique_ptr<CollectiveGroup> group;       ///< of the ranks
    std::unique_ptr<ProcessMeeting> meeting;      ///< null: this process is alone
    std::unique_ptr<cluster::ModelStore> models;  ///< null if the update does not use it
    /// One per rank, if the exchange overlaps with backward. Their threads must end before `group`.
    std::vector<std::unique_ptr<GradientExchange>> exchanges;
  };
  /// A feeder that fills host slots.
  struct HostFeed {
    std::unique_ptr<Device> slot_memory;  ///< of the ring
    std::unique_ptr<BatchRing> ring;
    std::unique_ptr<Feeder> feeder;
  };
  /// The data, and what is upstream of the ranks.
  struct Feed {
    double outside_reserve = 0;   ///< batches that may be ready outside the rings
    DataExtent extent;            ///< of the data that the feeder reads
    std::vector<HostFeed> hosts;  ///< none if feeders fill device slots; one of all ranks, or each
  };

  RunSetup setup;
  Schedule schedule;
  std::vector<Rank> ranks;  ///< in this process
  Links exchange;
  Feed feed;

 private:
  std::vector<Device*> devices() const;
  std::optional<Checkpoint> read_newest_checkpoint();
  std::optional<Checkpoint> open_checkpoint();
  void make_feeders();
  void compile_ranks();
  Tensor make_optimizer(Rank& rank, const ExecutableSpec& spec);
  void make_rank(std::int32_t index);
  GradientExchange* overlap(const Rank& rank);

  const Options update_options_, optimizer_options_;
};

}  // namespace penstock
