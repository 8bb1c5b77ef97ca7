// SPDX-License-Identifier: Apache-2.0
// An optimiser turns gradients into new weights, one element at a time. Its rule is one function
// over ranges. Host devices run it on several threads; other devices have kernels for it. A
// layer-wise rule also gets the norms of the tensor that its range belongs to.
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

/// The values that may change from step to step.
struct Hyper {
  float learning_rate = 0.005F;
  float weight_decay = 0;   ///< times the weight, added to the gradient, for parameters that decay
  float gradient_clip = 0;  ///< limits each element of the gradient to [-clip, clip], after scaling
                            ///< and decay; 0: no limit
  std::int64_t step = 0;    ///< updates made before this one
};

/// Elements [0, n) of a tensor, of its gradient, and of the rule's state for each element.
struct UpdateRange {
  std::span<float> weight;
  std::span<const float> gradient;  ///< not yet multiplied by `gradient_scale`
  std::array<std::span<float>, 2> state{};
  float gradient_scale = 1;
  /// Norms of the whole tensors, for layer-wise rules; 0 for tensors that the rule does not scale.
  /// The gradient's norm is taken after scaling and clipping, without decay.
  double weight_norm = 0, gradient_norm = 0;
};

/// How a rule treats whole tensors.
struct TensorRules {
  bool layer_wise = false;     ///< it needs their norms, so it cannot update a part of a tensor
  bool weights_alone = false;  ///< it neither scales nor decays biases and batch norms

  bool scales(const ParameterSpec& spec) const noexcept { return layer_wise && takes(spec); }
  bool decays(const ParameterSpec& spec) const noexcept { return spec.decays() && takes(spec); }

 private:
  bool takes(const ParameterSpec& spec) const noexcept {
    return !weights_alone || spec.role == Role::weight;
  }
};

/// What an optimizer keeps between steps, in device memory.
struct OptimizerState {
  std::size_t slots = 0;  ///< floats kept for each weight
  /// One for each slot, laid out as the weights; empty before prepare().
  std::array<Tensor, 2> arenas{};
  /// The LossScale that apply() adapts, as a tensor of two floats; empty if the scale is fixed. A
  /// rank whose optimizer applies nothing copies it from a rank whose optimizer does.
  Tensor loss_scale{};
};

/// Applies a rule to the parameters of one executable, and keeps its state between steps.
class Optimizer {
 public:
  explicit Optimizer(const TensorRules& tensors) : tensors_(tensors) {}
  virtual ~Optimizer() = default;
  /// Called before the first step. Allocates the rule's state, which starts at 0.
  virtual void prepare(const ParameterSet& set) = 0;
  /// Copies `hyper` to device memory. Never captured, so that replays read new values.
  virtual void set(const Hyper& hyper, Stream& stream) = 0;
  /// Enqueues one update of all weights by their gradients times `gradient_scale`, and computes the
  /// decay's share of the loss. `set` is the prepared set, or one with the same layout in other
  /// arenas.
  virtual void apply(const ParameterSet& set, float gradient_scale, Stream& stream,
                     StepResult& result) = 0;
  /// Enqueues only the decay's share of the loss, as apply() would report it.
  virtual void report_decay(const ParameterSet& set, Stream& stream, StepResult& result) = 0;
  /// Enqueues weights += share * (scale * other - weights) for the whole arena, with or without
  /// decay. Updates that average models use it. `other` is f32 and as long as the arena.
  virtual void average(const ParameterSet& set, const Tensor& other, float scale, float share,
                       Stream& stream) = 0;
  /// What checkpoints save and restore.
  virtual OptimizerState state() = 0;
  /// True: updates need whole tensors, not parts of them.
  bool layer_wise() const noexcept { return tensors_.layer_wise; }

 protected:
  const TensorRules tensors_;
};

/// The rules that devices have kernels for.
enum class DeviceRule : std::uint8_t { none, sgd, momentum, rmsprop, adam, lars };

struct OptimizerEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  std::size_t slots = 0;  ///< floats kept for each weight, at most UpdateRange::state.size()
  /// The kernel that computes this rule, with options of the same names. none: the optimizer runs
  /// on host devices only.
  DeviceRule device_rule = DeviceRule::none;
  /// Makes the rule, which updates the range in place. Several threads call the rule at once.
  using Rule = std::function<void(const Hyper&, const UpdateRange&)>;
  Rule (*make)(const Options&) = nullptr;
  TensorRules (*tensors)(const Options&) = nullptr;  ///< null: TensorRules{}
};

/// Every optimiser of this program. Generated from the component lists.
const Table<OptimizerEntry>& optimizer_table();

/// An optimiser and its options.
struct OptimizerChoice {
  const OptimizerEntry& entry;
  const Options& options;
  /// f16 or bf16: weights and biases are rounded to this format when the optimizer is prepared and
  /// after each update, as if they were stored in it.
  DType weights = DType::f32;
};
/// Whether OptimizerChoice::weights applies to this parameter: batch norms stay f32.
inline bool may_be_short(const ParameterSpec& spec) noexcept {
  return spec.role == Role::weight || spec.role == Role::bias;
}
inline TensorRules tensor_rules(const OptimizerChoice& choice) {
  return choice.entry.tensors != nullptr ? choice.entry.tensors(choice.options) : TensorRules{};
}

/// How an optimizer treats gradients that are not all finite.
struct FiniteRules {
  bool checks = false;        ///< such an update changes nothing and clears StepResult::finite
  float loss_scale = 1;       ///< the loss scale of the first step, if it adapts itself
  std::int32_t count_to = 0;  ///< above 0: the loss scale adapts itself
};
/// The rules for gradients that a device computes in the spec's precision.
FiniteRules finite_rules(const ExecutableSpec& spec);

/// Runs body(i) for i in [0, count), possibly on several threads. Returns when all are done.
using ParallelFor =
    std::function<void(std::size_t count, const std::function<void(std::size_t)>& body)>;
void serial_for(std::size_t count, const std::function<void(std::size_t)>& body);
/// Runs on the calling thread and `threads` - 1 others. The body throws nothing.
ParallelFor parallel_for_on(std::int32_t threads);

/// The optimiser for weights in host memory.
std::unique_ptr<Optimizer> make_host_optimizer(const OptimizerChoice& choice,
                                               ParallelFor parallel_for,
                                               const FiniteRules& finite = {});

}  // namespace penstock
