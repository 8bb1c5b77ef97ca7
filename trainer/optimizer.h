// SPDX-License-Identifier: Apache-2.0
// An optimiser turns gradients into new weights, one element at a time. Its rule is one function
// over ranges, which host devices run on several threads and other devices have kernels for. A
// layer-wise rule is also told the norms of the tensor that its range belongs to.
//
// To add one: a file in optimizers/ that ends in `extern constinit const OptimizerEntry
// NAME_optimizer{...}`, and one line `penstock_component(optimizer NAME)` there.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "trainer/backend.h"

namespace penstock {

/// What may change from step to step.
struct Hyper {
  float learning_rate = 0.005F;
  float weight_decay = 0;   ///< added to the gradient, times the weight, where it decays
  float gradient_clip = 0;  ///< each element of the gradient to [-clip, clip], after scaling and
                            ///< decay; 0: none
  std::int64_t step = 0;    ///< updates made before this one
};

/// Elements [0, n) of a tensor, of its gradient, and of what the rule remembers for each.
struct UpdateRange {
  std::span<float> weight;
  std::span<const float> gradient;  ///< times `gradient_scale`
  std::array<std::span<float>, 2> state{};
  float gradient_scale = 1;
  /// Of the whole tensors, for layer-wise rules, and 0 for tensors that are not to be scaled; the
  /// gradient's is taken behind scaling and clipping, without decay.
  double weight_norm = 0, gradient_norm = 0;
};

/// What a rule makes of whole tensors.
struct TensorRules {
  bool layer_wise = false;     ///< it needs their norms, so that it cannot update parts of them
  bool weights_alone = false;  ///< biases and batch norms are neither scaled nor decayed

  bool scales(const ParameterSpec& spec) const noexcept { return layer_wise && takes(spec); }
  bool decays(const ParameterSpec& spec) const noexcept { return spec.decays() && takes(spec); }

 private:
  bool takes(const ParameterSpec& spec) const noexcept {
    return !weights_alone || spec.role == Role::weight;
  }
};

/// Keeps what a rule needs between steps, for the parameters of one executable.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Called before the first step: makes room for what the rule remembers, which begins at 0.
  virtual void prepare(const ParameterSet& set) = 0;
  /// Into device memory; never captured, so that replays see new values.
  virtual void set(const Hyper& hyper, Stream& stream) = 0;
  /// Enqueues one update of all weights by their gradients times `gradient_scale`, and the decay's
  /// share of the loss. `set` is the prepared one, or has its layout in other arenas.
  virtual void apply(const ParameterSet& set, float gradient_scale, Stream& stream,
                     StepResult& result) = 0;
  /// Enqueues the decay's share of the loss alone, as apply() would report it.
  virtual void report_decay(const ParameterSet& set, Stream& stream, StepResult& result) = 0;
  /// Enqueues weights += share * (scale * other - weights) for the whole arena, decaying or not:
  /// what updates that average models need. `other` is f32 and as long as the arena.
  virtual void average(const ParameterSet& set, const Tensor& other, float scale, float share,
                       Stream& stream) = 0;
  /// Number of tensors kept for each parameter.
  virtual std::size_t slots() const noexcept = 0;
  /// One of them, in the layout of its parameter; for checkpoints.
  virtual Tensor state(const ParameterSet& set, std::size_t parameter, std::size_t slot) = 0;
  /// Updates are of whole tensors, not of parts of them.
  virtual bool layer_wise() const noexcept = 0;
  /// The LossScale that apply() adapts, as a tensor of two floats in device memory; empty where it
  /// is fixed. A rank whose optimizer applies nothing takes it over from one whose does.
  virtual Tensor loss_scale() = 0;
};

struct OptimizerEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  std::size_t slots = 0;  ///< floats kept for each weight, at most UpdateRange::state.size()
  /// Makes the rule: updates the range in place. Called from several threads at once.
  using Rule = std::function<void(const Hyper&, const UpdateRange&)>;
  Rule (*make)(const Options&) = nullptr;
  TensorRules (*tensors)(const Options&) = nullptr;  ///< null: TensorRules{}
};

/// Every optimiser of this program; generated from the component lists.
const Table<OptimizerEntry>& optimizer_table();

/// An optimiser and what the user typed behind its name.
struct OptimizerChoice {
  const OptimizerEntry& entry;
  const Options& options;
  /// f16 or bf16: weights and biases are rounded to what it holds of them, when the optimizer is
  /// prepared and behind each update, as if they were stored in it.
  DType weights = DType::f32;
};
/// Whether OptimizerChoice::weights is about this parameter: batch norms stay f32.
inline bool may_be_short(const ParameterSpec& spec) noexcept {
  return spec.role == Role::weight || spec.role == Role::bias;
}
inline TensorRules tensor_rules(const OptimizerChoice& choice) {
  return choice.entry.tensors != nullptr ? choice.entry.tensors(choice.options) : TensorRules{};
}

/// Runs body(i) for i in [0, count), possibly on several threads, and returns when all are done.
using ParallelFor =
    std::function<void(std::size_t count, const std::function<void(std::size_t)>& body)>;
void serial_for(std::size_t count, const std::function<void(std::size_t)>& body);

/// The optimiser of devices whose memory is the host's.
std::unique_ptr<Optimizer> make_host_optimizer(const OptimizerChoice& choice,
                                               ParallelFor parallel_for);

}  // namespace penstock
