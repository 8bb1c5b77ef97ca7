// SPDX-License-Identifier: Apache-2.0
// All that stands between batches in plain memory and weights on GPUs, over host drivers: a feeder,
// the pinned ring, a stager, device ring and replica for each rank, each on a thread of its own.
// The host's accesses to memory that streams touch are noted, so that races() judges the whole.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  std::string backend = "gpu";  ///< with options
  std::string update = "replicated";
  std::string optimizer = "momentum";
  std::int32_t ranks = 1, images = 2;  ///< of one rank
  std::size_t host_slots = 3, device_slots = 2;
  Precision precision = Precision::f32;
  float loss_scale = 1;
  std::int32_t loss_scale_count_to = 0;  ///< above 0: the scale adapts itself
  bool record_update = true;             ///< where the exchange can be recorded
  ExchangeSpec exchange{};
  /// Gradients are exchanged in such buckets while backward goes on. None: behind it.
  std::optional<BucketLimits> buckets{};
  std::function<Hyper(std::int64_t step)> hyper = [](std::int64_t step) {
    return Hyper{.learning_rate = 0.03125F, .weight_decay = 0.01F, .step = step};
  };
};

class TrainingRig {
 public:
  /// Rank r begins with initialise()'s weights of seed 1 + r.
  TrainingRig(const Graph& graph, const RigOptions& options,
              const HostMachineOptions& machine = {});
  TrainingRig(const TrainingRig&) = delete;
  TrainingRig& operator=(const TrainingRig&) = delete;
  ~TrainingRig();

  /// Feeds the batches, of which batch k is rank (k mod ranks)'s, and trains until they end. Called
  /// once. `failure`: the feeder fails with it behind the last batch. Throws the first failure of a
  /// rank, once all threads have ended.
  void run(const std::vector<PlainBatch>& batches, std::exception_ptr failure = nullptr);

  /// Steps that the rank finished.
  const std::vector<StepResult>& results(std::int32_t rank) const;
  /// In the graph's order of parameters.
  PlainTensors weights(std::int32_t rank);
  /// What the optimiser keeps first, by the executable's order of parameters.
  PlainTensors state(std::int32_t rank);
  /// Of a rank that has one which adapts itself.
  LossScale loss_scale(std::int32_t rank);
  /// Of a rank whose exchange overlaps with backward.
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

  const Graph graph_;
  const RigOptions options_;
  SteadyClock clock_;
  std::stop_source stop_;
  std::shared_ptr<HostDriverLibrary> library_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<CollectiveGroup> group_;
  std::unique_ptr<BatchRing> host_ring_;
};

}  // namespace penstock::gpu
