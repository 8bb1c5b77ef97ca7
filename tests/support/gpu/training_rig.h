// SPDX-License-Identifier: Apache-2.0
// The whole path from batches in plain memory to weights on GPUs, over host drivers: a feeder, the
// pinned ring, and for each rank a stager, a device ring and a replica, each on its own thread. The
// rig notes the host's accesses to memory that streams access, so that races() covers the whole
// path.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataflow/host_device.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/plain_net.h"
#include "trainer/backend.h"
#include "trainer/buckets.h"
#include "trainer/collective.h"
#include "trainer/exchange.h"
#include "trainer/loss_scale.h"
#include "trainer/optimizer.h"
#include "trainer/replica.h"
#include "trainer/update_strategy.h"

namespace penstock::gpu {

struct RigOptions {
  std::string backend = "gpu";        ///< name with options
  std::string update = "replicated";  ///< name with options
  std::string optimizer = "momentum";
  std::int32_t ranks = 1, images = 2;  ///< images: of one rank
  std::size_t host_slots = 3, device_slots = 2;
  Precision precision = Precision::f32;
  float loss_scale = 1;
  std::int32_t loss_scale_count_to = 0;  ///< above 0: the loss scale adapts itself
  bool record_update = true;             ///< if the exchange can be recorded
  ExchangeSpec exchange{};
  /// The buckets in which gradients are exchanged, or copied to the host, during the backward pass.
  /// None: one exchange after it.
  std::optional<BucketLimits> buckets{};
  std::function<Hyper(std::int64_t step)> hyper = [](std::int64_t step) {
    return Hyper{.learning_rate = 0.03125F, .weight_decay = 0.01F, .step = step};
  };
};

class TrainingRig {
 public:
  /// Rank r begins with the weights of initialise() for seed 1 + r.
  TrainingRig(const Graph& graph, const RigOptions& options,
              const HostMachineOptions& machine = {});
  TrainingRig(const TrainingRig&) = delete;
  TrainingRig& operator=(const TrainingRig&) = delete;
  ~TrainingRig();

  /// Feeds the batches and trains until they end; rank (k mod ranks) gets batch k. Call it once.
  /// `failure`: the feeder throws it after the last batch. Throws the first failure of a rank when
  /// all threads have ended.
  void run(const std::vector<PlainBatch>& batches, std::exception_ptr failure = nullptr);

  /// The steps that the rank finished.
  const std::vector<StepResult>& results(std::int32_t rank) const;
  /// In the graph's order of parameters.
  PlainTensors weights(std::int32_t rank);
  /// The first state of the optimiser, by the executable's order of parameters.
  PlainTensors state(std::int32_t rank);
  /// For a rank with a loss scale that adapts itself.
  LossScale loss_scale(std::int32_t rank);
  /// For a rank whose exchange overlaps with the backward pass.
  ExchangeTimes exchange_times(std::int32_t rank) const;
  bool overlaps(std::int32_t rank) const;
  HostDriver& driver(std::int32_t rank);
  Executable& executable(std::int32_t rank);
  Device& device(std::int32_t rank);
  std::vector<std::string> races();

 private:
  struct Rank;
  class Noting;
  void feed(const std::vector<PlainBatch>& batches, std::exception_ptr failure);
  void publish(const PlainBatch& from);
  void train(Rank& rank);
  Rank& rank_of(std::int32_t rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

  const Graph graph_;
  const RigOptions options_;
  SteadyClock clock_;
  HostDevice host_{clock_};  // of updates in host memory
  std::stop_source stop_;
  std::shared_ptr<HostDriverLibrary> library_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<CollectiveGroup> group_;
  std::unique_ptr<BatchRing> host_ring_;
};

}  // namespace penstock::gpu
