// SPDX-License-Identifier: Apache-2.0
// Ranks that train a quadratic under an update, one step of one rank at a time or all together. Its
// gradient is a formula of the weights, so that a test can follow an algorithm in double.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/host_device.h"
#include "dataflow/probe.h"
#include "tests/support/rank_threads.h"
#include "trainer/collectives/threads.h"
#include "trainer/model_store.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// Elements of the quadratic's three tensors, of nodes 2, 1 and 0: backward finishes them so.
inline constexpr std::size_t kQuadraticCounts[] = {3, 5, 2};
inline constexpr std::size_t kQuadraticElements = 10;

/// Its first weights differ by rank; updates have to begin with rank 0's.
inline double quadratic_start(std::int32_t rank, std::size_t element) {
  return 1 + 0.25 * static_cast<double>(element) - 8. * rank;
}
/// The gradient that a rank computes in its step, from 0, with weight `w`.
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
      set_.parameters.push_back({{"w" + std::to_string(--node), node, Role::weight, {shape}},
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

class UpdateRanks {
 public:
  static constexpr float kRate = 0.125F;
  using Make = std::function<std::unique_ptr<UpdateStrategy>(const UpdateContext&)>;

  /// `update` with the options typed behind its name.
  UpdateRanks(std::int32_t ranks, std::string_view update, Clock& clock,
              GradientReduction reduction = GradientReduction::mean,
              std::string_view optimizer = "sgd")
      : UpdateRanks(ranks, update, find_update(update).make, clock, reduction, optimizer) {}

  /// The same with a strategy that the test makes.
  UpdateRanks(std::int32_t ranks, std::string_view update, const Make& make, Clock& clock,
              GradientReduction reduction = GradientReduction::mean,
              std::string_view optimizer = "sgd")
      : device_(clock),
        devices_(static_cast<std::size_t>(ranks), &device_),
        group_(devices_, clock, {}),
        store_(devices_, clock, {}) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(make_rank(rank, update, make, reduction, optimizer));
    }
    together([&](std::int32_t rank) {
      Rank& one = at(rank);
      one.optimizer->prepare(one.model.parameters());
      one.strategy->start(one.model, *one.stream);
    });
  }

  /// One step of one rank, on the calling thread.
  void step(std::int32_t rank) {
    Rank& one = at(rank);
    StepResult result;
    one.optimizer->set({.learning_rate = kRate, .step = one.steps++}, *one.stream);
    one.model.run(Phase::train, {}, *one.stream, {}, result);
    one.strategy->finish_step(one.model, *one.stream, result);
  }
  /// `count` steps of all ranks, one thread each.
  void steps(std::int32_t count) {
    together([&](std::int32_t rank) {
      for (std::int32_t i = 0; i < count; ++i) step(rank);
    });
  }
  const std::vector<float>& weights(std::int32_t rank) { return at(rank).model.weights(); }
  const UpdateStrategy& strategy(std::int32_t rank) { return *at(rank).strategy; }
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

  static const UpdateEntry& find_update(std::string_view text) {
    return find_entry(update_table(), parse_component(text).name);
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
    one->collective = group_.join(rank);
    one->optimizer = make_host_optimizer({rule, one->optimizer_options}, serial_for);
    one->stream = device_.make_stream();
    one->strategy = make({.collective = *one->collective,
                          .optimizer = *one->optimizer,
                          .reduction = reduction,
                          .local_ranks = static_cast<std::int32_t>(devices_.size()),
                          .options = one->options,
                          .device = &device_,
                          .models = &store_,
                          .probe = &probe_});
    return one;
  }
  Rank& at(std::int32_t rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  void together(const std::function<void(std::int32_t)>& body) {
    run_ranks(static_cast<std::int32_t>(ranks_.size()), body);
  }

  HostDevice device_;
  std::vector<Device*> devices_;
  ThreadsGroup group_;
  ThreadsModelStore store_;
  Probe probe_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace penstock
