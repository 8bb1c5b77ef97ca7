// SPDX-License-Identifier: Apache-2.0
// Ranks that train a quadratic under an update, one step of one rank at a time or all ranks
// together. Its gradient is a formula of the weights, so that a test can compute the same algorithm
// in double.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "dataflow/host_device.h"
#include "dataflow/probe.h"
#include "tests/support/rank_threads.h"
#include "trainer/cluster/model_store.h"
#include "trainer/collectives/threads.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// Sizes of the quadratic's three tensors, of nodes 2, 1 and 0: the order in which the backward
/// pass completes them.
inline constexpr std::size_t kQuadraticCounts[] = {3, 5, 2};
inline constexpr std::size_t kQuadraticElements = 10;

/// Initial weights. They differ by rank; updates must begin with rank 0's weights.
inline double quadratic_start(std::int32_t rank, std::size_t element) {
  return 1 + 0.25 * static_cast<double>(element) - 8. * rank;
}
/// The gradient that a rank computes in its step (from 0) at weight `w`.
inline double quadratic_gradient(double w, std::int32_t rank, std::int64_t step,
                                 std::size_t element) {
  const double curvature = 0.5 + 0.125 * static_cast<double>(element);
  const double target = 1.5 * rank - 0.5 * static_cast<double>(step % 3);
  return curvature * (w - target);
}

class Quadratic final : public Executable {
 public:
  explicit Quadratic(std::int32_t rank)
      : rank_(rank), weights_(kQuadraticElements), gradients_(kQuadraticElements) {
    for (std::size_t i = 0; i < kQuadraticElements; ++i) {
      weights_[i] = static_cast<float>(quadratic_start(rank, i));
    }
    set_.weights = {weights_.data(), weights_.size()};
    set_.gradients = {gradients_.data(), gradients_.size()};
    std::size_t first = 0;
    NodeId node = 3;
    for (const std::size_t count : kQuadraticCounts) {
      const auto shape = static_cast<std::int64_t>(count);
      set_.parameters.push_back({{fmt::format("w{}", --node), node, Role::weight, {shape}},
                                 {weights_.data() + first, count},
                                 {gradients_.data() + first, count}});
      first += count;
    }
  }
  const ParameterSet& parameters() const noexcept override { return set_; }
  void run(Phase, const Batch&, Stream&, const GradientReady&, StepResult& result) override {
    for (std::size_t i = 0; i < kQuadraticElements; ++i) {
      gradients_[i] = static_cast<float>(quadratic_gradient(weights_[i], rank_, step_, i));
    }
    ++step_;
    result = {};
  }
  void read(const ParameterSpec&, const Tensor&, std::span<float>) override {}
  void write(const ParameterSpec&, const Tensor&, std::span<const float>) override {}
  void set_step(std::int64_t step) override { step_ = step; }
  const std::vector<float>& weights() const { return weights_; }

 private:
  const std::int32_t rank_;
  std::int64_t step_ = 0;
  std::vector<float> weights_, gradients_;
  ParameterSet set_;
};

/// Ranks [first, first + count) of a run, and the objects through which they exchange.
struct RanksHere {
  CollectiveGroup& group;
  cluster::ModelStore* models;
  std::int32_t first = 0, count = 1;
};

class UpdateRanks {
 public:
  static constexpr float kRate = 0.125F;
  /// The store is null if the ranks cannot read each other's models.
  using Make =
      std::function<std::unique_ptr<UpdateStrategy>(const UpdateContext&, cluster::ModelStore*)>;

  /// `update` includes its options. All ranks are threads of this process.
  UpdateRanks(std::int32_t ranks, std::string_view update, Clock& clock,
              GradientReduction reduction = GradientReduction::mean,
              std::string_view optimizer = "sgd")
      : UpdateRanks(ranks, update, maker_of(update, clock), clock, reduction, optimizer) {}

  /// Uses a strategy that the test makes.
  UpdateRanks(std::int32_t ranks, std::string_view update, const Make& make, Clock& clock,
              GradientReduction reduction = GradientReduction::mean,
              std::string_view optimizer = "sgd")
      : UpdateRanks(std::make_unique<Threads>(ranks, clock), update, make, clock, reduction,
                    optimizer) {}

  /// Other ranks may be in other processes. Borrows `here`.
  UpdateRanks(const RanksHere& here, std::string_view update, Clock& clock,
              GradientReduction reduction = GradientReduction::mean)
      : UpdateRanks(here, update, maker_of(update, clock), clock, reduction, "sgd") {}

  /// Runs one step of one rank on the calling thread.
  void step(std::int32_t rank) {
    Rank& one = at(rank);
    StepResult result;
    one.optimizer->set({.learning_rate = kRate, .step = one.steps++}, *one.stream);
    one.model.run(Phase::train, {}, *one.stream, {}, result);
    one.strategy->finish_step(one.model, *one.stream, result);
  }
  /// Runs `count` steps of all ranks, one thread each.
  void steps(std::int32_t count) {
    together([&](std::int32_t rank) {
      for (std::int32_t i = 0; i < count; ++i) step(rank);
    });
  }
  /// The weights of a rank in this process.
  const std::vector<float>& weights(std::int32_t rank) { return at(rank).model.weights(); }
  KeptArenas kept(std::int32_t rank) {
    return at(rank).strategy->kept(at(rank).model.parameters());
  }
  Probe& probe() { return probe_; }

 private:
  struct Rank {
    Options options, optimizer_options;
    std::unique_ptr<Collective> collective{};
    std::unique_ptr<Optimizer> optimizer{};
    std::unique_ptr<Stream> stream{};
    std::unique_ptr<UpdateStrategy> strategy{};
    Quadratic model;
    std::int64_t steps = 0;
  };

  struct Threads {
    Threads(std::int32_t ranks, Clock& clock)
        : device(clock),
          devices(static_cast<std::size_t>(ranks), &device),
          group(devices, clock, {}),
          store(devices, clock, {}) {}
    HostDevice device;
    std::vector<Device*> devices;
    collectives::ThreadsGroup group;
    cluster::ThreadsModelStore store;
  };

  UpdateRanks(std::unique_ptr<Threads> threads, std::string_view update, const Make& make,
              Clock& clock, GradientReduction reduction, std::string_view optimizer)
      : UpdateRanks({threads->group, &threads->store, 0,
                     static_cast<std::int32_t>(threads->devices.size())},
                    update, make, clock, reduction, optimizer) {
    threads_ = std::move(threads);
  }
  UpdateRanks(const RanksHere& here, std::string_view update, const Make& make, Clock& clock,
              GradientReduction reduction, std::string_view optimizer)
      : device_(clock), here_(here) {
    for (std::int32_t index = 0; index < here.count; ++index) {
      ranks_.push_back(make_rank(here.first + index, update, make, reduction, optimizer));
    }
    together([&](std::int32_t rank) {
      Rank& one = at(rank);
      one.optimizer->prepare(one.model.parameters());
      one.strategy->start(one.model, *one.stream);
    });
  }

  static const UpdateEntry& find_update(std::string_view text) {
    return find_entry(update_table(), parse_component(text).name);
  }
  static Make maker_of(std::string_view text, Clock& clock) {
    return [&entry = find_update(text), &clock](const UpdateContext& context,
                                                cluster::ModelStore* models) {
      if (entry.make_reading == nullptr || models == nullptr) return entry.make(context);
      return entry.make_reading(context, {*models, clock});
    };
  }
  std::unique_ptr<Rank> make_rank(std::int32_t rank, std::string_view update, const Make& make,
                                  GradientReduction reduction, std::string_view optimizer) {
    const UpdateEntry& entry = find_update(update);
    const OptimizerEntry& rule = find_entry(optimizer_table(), optimizer);
    auto one = std::make_unique<Rank>(Rank{
        .options = Options(entry.name, entry.options, parse_component(update)),
        .optimizer_options = Options(rule.name, rule.options, {}),
        .model = Quadratic(rank),
    });
    one->collective = here_.group.join(rank);
    one->optimizer = make_host_optimizer({rule, one->optimizer_options}, serial_for);
    one->stream = device_.make_stream();
    one->strategy = make({.collective = *one->collective,
                          .optimizer = *one->optimizer,
                          .reduction = reduction,
                          .local_ranks = here_.count,
                          .options = one->options,
                          .device = &device_,
                          .probe = &probe_},
                         here_.models);
    return one;
  }
  Rank& at(std::int32_t rank) { return *ranks_.at(static_cast<std::size_t>(rank - here_.first)); }
  void together(const std::function<void(std::int32_t)>& body) {
    run_ranks(here_.count, [&](std::int32_t index) { body(here_.first + index); });
  }

  HostDevice device_;
  std::unique_ptr<Threads> threads_;  // null if other objects connect the ranks
  const RanksHere here_;
  Probe probe_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace penstock
