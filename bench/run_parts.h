// SPDX-License-Identifier: Apache-2.0
// All parts of one run, in the order in which they are made; whoever runs them owns the threads.
//
//   feeder -> host ring -> stager -> device ring -> replica    (one stager, ring, replica per rank)
//   device feeder (one per rank)  -> device ring -> replica
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run_config.h"
#include "bench/run_exchange.h"
#include "bench/runner.h"
#include "bench/trace.h"
#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/memory_limit.h"
#include "dataflow/probe.h"
#include "dataflow/stager.h"
#include "feeders/feeder.h"
#include "trainer/checkpoint.h"
#include "trainer/collective.h"
#include "trainer/exchange.h"
#include "trainer/learning_rate.h"
#include "trainer/model_store.h"
#include "trainer/replica.h"

namespace penstock {

class RunParts {
 public:
  /// One rank: what stands between its device ring and its weights.
  struct Rank {
    std::unique_ptr<Device> device;
    std::unique_ptr<BatchRing> ring;
    std::unique_ptr<Feeder> feeder;  // if feeders fill device slots
    std::unique_ptr<Stager> stager;  // if they fill host slots
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<Collective> collective;
    std::unique_ptr<UpdateStrategy> update;
    std::unique_ptr<Replica> replica;
    Leg leg;
  };

  /// `clock`, the entries of `components` and the trace, if there is one, outlive the parts; `stop`
  /// ends compilations with an Error, `abandon` lets ranks leave an exchange. Throws ConfigError,
  /// Unavailable, TimeoutError.
  RunParts(const RunConfig& wanted, Clock& clock, const Runner::Components& components,
           std::stop_token stop, std::stop_token abandon, Trace* trace = nullptr);
  ~RunParts();

  double steps_per_epoch() const noexcept {
    return examples_per_epoch / static_cast<double>(config.batch_size * all_devices(config));
  }
  bool feeds_devices() const noexcept { return host_ring == nullptr; }
  /// Published by the feeders so far, in batches.
  std::uint64_t published() const;
  /// Taken from the device rings so far, in batches.
  std::uint64_t taken() const;
  /// What all ranks' exchanges took so far.
  ExchangeTimes exchange_times() const;

  /// A feeder of the run's kind and options, for a ring of `slots` slots in `device`'s memory or
  /// the host's.
  std::unique_ptr<Feeder> make_feeder(const BatchSpec& batches, DataPlan data, Device& device,
                                      std::int32_t slots, Probe& counters);
  /// What a checkpoint of this run says, after `step` updates.
  CheckpointInfo checkpoint_info(std::int64_t step) const;
  /// Rank 0's, where it adapts itself. The device is idle.
  std::optional<LossScale> loss_scale() const;
  /// The model for batches of `batches` on the rank's device, with weights that mean nothing. Says
  /// how far it is, if `reports`.
  std::unique_ptr<Executable> compile(const BatchSpec& batches, std::int32_t rank,
                                      bool reports = true);

  const Runner::Components components;
  RunConfig config;  ///< resolved
  Clock& clock;
  Trace* const trace;          ///< of the window's first steps; null: none is wanted
  double outside_reserve = 0;  ///< batches that may lie ready outside our rings
  Probe probe;
  DataExtent extent;              ///< of what the feeder reads
  double examples_per_epoch = 0;  ///< its own, or ImageNet's
  LearningRatePlan learning_rates;
  std::int64_t first_step = 0;  ///< updates made by the runs that this one continues
  std::unique_ptr<Backend> backend;
  BatchSpec spec;
  Graph graph;
  std::vector<Rank> ranks;                  ///< of this process
  std::stop_source stopping;                ///< requested when someone outside ends the run
  std::unique_ptr<CollectiveGroup> group;   ///< of the ranks
  std::unique_ptr<ProcessMeeting> meeting;  ///< null: this process is alone
  std::unique_ptr<ModelStore> models;       ///< null where the update does not ask for it
  /// One a rank where they overlap with backward. Before `group` ends, their threads do.
  std::vector<std::unique_ptr<GradientExchange>> exchanges;
  std::unique_ptr<Device> slot_memory;   // of the host ring
  std::unique_ptr<BatchRing> host_ring;  // null where feeders fill device slots
  std::unique_ptr<Feeder> host_feeder;

 private:
  Processes* processes() const noexcept { return components.processes; }
  /// The ranks of this process exchange among themselves alone.
  bool exchanges_inside() const noexcept {
    return components.processes == nullptr || components.servers != nullptr;
  }
  std::int32_t global_rank(std::int32_t rank) const noexcept;
  std::int32_t neighbours() const noexcept;
  std::vector<Device*> devices() const;
  bool feeds_device_slots() const noexcept {
    return components.feeder->slots == MemoryKind::device;
  }
  std::vector<MemoryNeed> ring_needs(const std::string& of, const BatchSpec& batches,
                                     std::string_view batch_flag, double devices) const;
  std::vector<MemoryNeed> memory_needs() const;
  std::unique_ptr<ModelStore> make_models(const std::stop_token& abandon);
  std::optional<Checkpoint> open_checkpoint();
  void restore(const Checkpoint& checkpoint);
  void make_feeders();
  void watch_rings();
  DataPlan data_plan(std::int32_t rank) const;
  ExecutableSpec executable_spec(const BatchSpec& batches, std::int32_t rank) const;
  void compile_ranks();
  void make_rank(std::int32_t index);
  void tell_step(std::int64_t step) const;
  GradientExchange* overlap(const Rank& rank);
  void refuse_partial_checkpoints(const Rank& rank) const;
  Marks marks(Work work, std::int32_t rank = 0) const;
  void note_shared_cores();
  void note_exchange();
  void note_unused_classes();
  void note_unused_loss_scale();

  const std::stop_token stop_;  // ends compilations
  const Options feeder_options_, update_options_, optimizer_options_;
};

}  // namespace penstock
