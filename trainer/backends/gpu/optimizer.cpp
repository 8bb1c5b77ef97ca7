// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/backend.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

/// The entry's rule as the kernel's call.
UpdateWeights kernel_of(const OptimizerChoice& choice) {
  choice.entry.make(choice.options);  // checks the options
  const auto real = [&](std::string_view name) { return choice.options.real(name); };
  switch (choice.entry.device_rule) {
    case DeviceRule::none:
      break;
    case DeviceRule::sgd:
      return {.rule = UpdateRule::sgd};
    case DeviceRule::momentum:
      return {.rule = choice.options.flag("nesterov") ? UpdateRule::nesterov : UpdateRule::momentum,
              .constants = {real("momentum")}};
    case DeviceRule::rmsprop:
      return {.rule = UpdateRule::rmsprop,
              .constants = {real("decay"), real("momentum"), real("epsilon")}};
    case DeviceRule::adam:
      return {.rule = UpdateRule::adam,
              .constants = {real("beta1"), real("beta2"), real("epsilon")}};
    case DeviceRule::lars:
      return {.rule = UpdateRule::lars, .constants = {real("momentum")}};
  }
  throw Unavailable(
      "the gpu device has no kernel for the optimizer '{}'; it has sgd, momentum, rmsprop, adam "
      "and lars",
      choice.entry.name);
}

/// The entry's constants of trust_ratio(), if it is layer-wise.
FindTrust trust_of(const OptimizerChoice& choice) {
  if (!tensor_rules(choice).layer_wise) return {};
  return {.eta = choice.options.real("eta"), .epsilon = choice.options.real("epsilon")};
}

/// The LossScale inside the scalars.
Tensor loss_scale_in(StepScalars* scalars) {
  static_assert(offsetof(StepScalars, good_steps) ==
                offsetof(StepScalars, loss_scale) + sizeof(float));
  return {&scalars->loss_scale, 2, DType::f32};
}

/// Values in the device's memory.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(GpuDevice& device, std::size_t count)
      : memory_(device.allocate(count * sizeof(T), MemoryKind::device)) {}
  DeviceArray(GpuDevice& device, const std::vector<T>& values)
      : DeviceArray(device, values.size()) {
    device.copy_now(memory_.bytes().data(), reinterpret_cast<const std::byte*>(values.data()),
                    values.size() * sizeof(T));
  }
  T* get() const { return reinterpret_cast<T*>(memory_.bytes().data()); }

 private:
  Buffer memory_;
};

class GpuOptimizer final : public Optimizer {
 public:
  GpuOptimizer(const OptimizerChoice& choice, const FiniteRules& rules, GpuDevice& device)
      : Optimizer(tensor_rules(choice)),
        kernel_(kernel_of(choice)),
        trust_(trust_of(choice)),
        slots_(choice.entry.slots),
        stored_(choice.weights),
        rules_(rules),
        device_(device) {
    if (rules_.count_to > 0) {
      write_loss_scale({rules_.loss_scale, 0}, loss_scale_in(device_.scalars()), device_);
    }
  }

  void prepare(const ParameterSet& set) override {
    if (squares_.get() != nullptr || set.parameters.empty()) return;
    std::vector<ArenaChunk> chunks;
    std::vector<ArenaTensor> tensors;
    cut(set, chunks, tensors);
    kernel_.chunk_count = static_cast<std::int32_t>(chunks.size());
    weight_count_ = set.weights.count;
    chunks_ = {device_, chunks};
    kernel_.chunks = chunks_.get();
    if (tensors_.layer_wise) prepare_trust(tensors);
    for (ArenaChunk& chunk : chunks) chunk.flag = true;
    averaging_chunks_ = {device_, chunks};
    averaging_scalars_ = {device_, std::vector<StepScalars>(1)};
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      state_[slot] = {device_, std::vector<float>(set.weights.count)};
      kernel_.state[slot] = state_[slot].get();
    }
    squares_ = {device_, chunks.size()};
    kernel_.squares = squares_.get();
    if (stored_ != DType::f32) prepare_rounding(set);
    if (rules_.checks) {
      finite_ = {device_, std::size_t{kFiniteBlocks}};
      kernel_.finite = finite_.get();
    }
    kernel_.weights = static_cast<float*>(set.weights.data);
    kernel_.gradients = static_cast<const float*>(set.gradients.data);
    kernel_.scalars = device_.scalars();
    warm_up();
  }

  void set(const Hyper& hyper, Stream& stream) override {
    decay_ = hyper.weight_decay;
    device_.driver().launch(GpuStream::of(stream).handle(), SetHyper{device_.scalars(), hyper});
  }

  void apply(const ParameterSet& set, float gradient_scale, Stream& stream,
             StepResult& result) override {
    if (set.parameters.empty()) return;
    PENSTOCK_ASSERT(kernel_.squares != nullptr);
    UpdateWeights update = kernel_;
    update.weights = static_cast<float*>(set.weights.data);
    update.gradients = static_cast<const float*>(set.gradients.data);
    update.gradient_scale = gradient_scale;
    launch(update, set.gradients.count, *device_.scalars(), stream, result);
    round(set, stream);
  }

  /// Runs gradient descent at rate 0 with gradient 0.
  void report_decay(const ParameterSet& set, Stream& stream, StepResult& result) override {
    if (set.parameters.empty()) return;
    const StreamHandle on = GpuStream::of(stream).handle();
    descend(set, set.weights, 0, {.learning_rate = 0, .weight_decay = decay_}, kernel_.chunks, on);
    device_.driver().launch(on, SummariseUpdate{.squares = kernel_.squares,
                                                .chunk_count = kernel_.chunk_count,
                                                .scalars = averaging_scalars_.get(),
                                                .result = &result});
  }

  /// Runs gradient descent where all weights decay: w -= share * (-scale * other + 1 * w).
  void average(const ParameterSet& set, const Tensor& other, float scale, float share,
               Stream& stream) override {
    if (set.parameters.empty()) return;
    PENSTOCK_ASSERT(other.count == set.weights.count);
    descend(set, other, -scale, {.learning_rate = share, .weight_decay = 1},
            averaging_chunks_.get(), GpuStream::of(stream).handle());
    round(set, stream);
  }

  OptimizerState state() override {
    OptimizerState state{.slots = slots_};
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      state.arenas[slot] = {kernel_.state[slot], weight_count_, DType::f32};
    }
    if (rules_.count_to > 0) state.loss_scale = loss_scale_in(device_.scalars());
    return state;
  }

 private:
  /// Gradient descent apart from the step's own: with other gradients, rate and decay.
  void descend(const ParameterSet& set, const Tensor& gradients, float scale, const Hyper& hyper,
               const ArenaChunk* chunks, StreamHandle on) {
    PENSTOCK_ASSERT(kernel_.squares != nullptr);
    StepScalars* const scalars = averaging_scalars_.get();
    device_.driver().launch(on, SetHyper{scalars, hyper});
    device_.driver().launch(on, UpdateWeights{.rule = UpdateRule::sgd,
                                              .weights = static_cast<float*>(set.weights.data),
                                              .gradients = static_cast<float*>(gradients.data),
                                              .gradient_scale = scale,
                                              .chunks = chunks,
                                              .chunk_count = kernel_.chunk_count,
                                              .scalars = scalars,
                                              .squares = kernel_.squares});
  }
  /// A chunk's flag marks weights that are rounded.
  void prepare_rounding(const ParameterSet& set) {
    std::vector<ArenaChunk> chunks;
    for (const Parameter& parameter : set.parameters) {
      add_chunks(set, parameter, may_be_short(parameter.spec), chunks);
    }
    rounded_chunks_ = {device_, chunks};
    short_weights_ = device_.allocate(set.weights.count * size_of(stored_), MemoryKind::device);
    GpuStream stream(device_.driver());
    round(set, stream);
    stream.finish();
  }
  /// Rounds weights to the 16-bit type and back, if they are stored in one.
  void round(const ParameterSet& set, Stream& stream) {
    if (stored_ == DType::f32) return;
    Driver& driver = device_.driver();
    const StreamHandle on = GpuStream::of(stream).handle();
    auto* const weights = static_cast<float*>(set.weights.data);
    driver.launch(
        on, NarrowWeights{weights, short_weights_.bytes().data(), stored_, set.weights.count});
    driver.launch(on, WidenGradients{.narrow = short_weights_.bytes().data(),
                                     .type = stored_,
                                     .wide = weights,
                                     .chunks = rounded_chunks_.get(),
                                     .chunk_count = kernel_.chunk_count,
                                     .scalars = averaging_scalars_.get()});
  }

  void prepare_trust(const std::vector<ArenaTensor>& tensors) {
    const auto count = static_cast<std::size_t>(kernel_.chunk_count);
    arena_tensors_ = {device_, tensors};
    tensor_squares_ = {device_, std::vector<float>(2 * count)};
    chunk_trust_ = {device_, count};
    trust_.tensors = arena_tensors_.get();
    trust_.tensor_count = static_cast<std::int32_t>(tensors.size());
    trust_.chunk_count = kernel_.chunk_count;
    trust_.squares = tensor_squares_.get();
    trust_.trust = chunk_trust_.get();
    kernel_.trust = trust_.trust;
  }

  /// Updates 64 scratch weights. Kernels are loaded at their first launch, which must not happen in
  /// a recording.
  void warm_up() {
    constexpr std::size_t kWeights = 64;
    const DeviceArray<float> arenas(device_, std::vector<float>(4 * kWeights)),
        squares(device_, std::size_t{1});
    const DeviceArray<ArenaChunk> table(device_, {ArenaChunk{0, kWeights, true}});
    const DeviceArray<StepScalars> own(device_, std::vector<StepScalars>(1));
    const Buffer pinned = device_.allocate(sizeof(StepResult), MemoryKind::pinned);
    StepScalars* const scalars = own.get();
    UpdateWeights update = kernel_;
    update.weights = arenas.get();
    update.gradients = arenas.get() + kWeights;
    update.state[0] = arenas.get() + 2 * kWeights;
    update.state[1] = arenas.get() + 3 * kWeights;
    update.chunks = table.get();
    update.chunk_count = 1;
    update.squares = squares.get();
    update.scalars = scalars;
    GpuStream stream(device_.driver());
    device_.driver().launch(stream.handle(), SetHyper{scalars, {}});
    launch(update, kWeights, *scalars, stream, *::new (pinned.bytes().data()) StepResult);
    stream.finish();
  }

  void launch(const UpdateWeights& update, std::size_t count, StepScalars& scalars, Stream& stream,
              StepResult& result) {
    Driver& driver = device_.driver();
    const StreamHandle on = GpuStream::of(stream).handle();
    if (rules_.checks) {
      driver.launch(on, CheckFinite{update.gradients, count, finite_.get()});
    }
    if (tensors_.layer_wise) launch_trust(update, on);
    driver.launch(on, update);
    driver.launch(on, SummariseUpdate{update.squares, update.chunk_count, update.finite,
                                      update.scalars, &result});
    if (rules_.count_to > 0) {
      driver.launch(on,
                    AdaptLossScale{update.finite, static_cast<float>(rules_.count_to), &scalars});
    }
  }
  void launch_trust(const UpdateWeights& update, StreamHandle on) {
    Driver& driver = device_.driver();
    driver.launch(on, SumSquares{.weights = update.weights,
                                 .gradients = update.gradients,
                                 .gradient_scale = update.gradient_scale,
                                 .chunks = update.chunks,
                                 .chunk_count = update.chunk_count,
                                 .scalars = update.scalars,
                                 .squares = tensor_squares_.get()});
    FindTrust trust = trust_;
    trust.scalars = update.scalars;
    driver.launch(on, trust);
  }

  static std::size_t offset_of(const ParameterSet& set, const Tensor& weight) {
    return static_cast<std::size_t>(static_cast<float*>(weight.data) -
                                    static_cast<float*>(set.weights.data));
  }
  static void add_chunks(const ParameterSet& set, const Parameter& parameter, bool flag,
                         std::vector<ArenaChunk>& chunks) {
    const std::size_t offset = offset_of(set, parameter.weight);
    for (std::size_t first = 0; first < parameter.weight.count; first += kChunkElements) {
      const auto count = static_cast<std::uint32_t>(
          std::min<std::size_t>(kChunkElements, parameter.weight.count - first));
      chunks.push_back({offset + first, count, flag});
    }
  }
  /// A chunk's flag marks weights that decay.
  void cut(const ParameterSet& set, std::vector<ArenaChunk>& chunks,
           std::vector<ArenaTensor>& tensors) const {
    for (const Parameter& parameter : set.parameters) {
      const auto first_chunk = static_cast<std::int32_t>(chunks.size());
      add_chunks(set, parameter, tensors_.decays(parameter.spec), chunks);
      tensors.push_back({first_chunk, static_cast<std::int32_t>(chunks.size()) - first_chunk,
                         tensors_.scales(parameter.spec), tensors_.decays(parameter.spec)});
    }
  }

  UpdateWeights kernel_;  ///< all fields except the scale of the gradients
  FindTrust trust_;       ///< for layer-wise rules
  const std::size_t slots_;
  const DType stored_;  ///< the type of weights and biases
  const FiniteRules rules_;
  float decay_ = 0;  ///< weight decay of the latest set()
  GpuDevice& device_;
  std::size_t weight_count_ = 0;
  DeviceArray<ArenaChunk> chunks_;
  DeviceArray<float> squares_;
  std::array<DeviceArray<float>, 2> state_;
  DeviceArray<std::int32_t> finite_;
  // For average(): all chunks decay.
  DeviceArray<ArenaChunk> averaging_chunks_;
  DeviceArray<StepScalars> averaging_scalars_;
  // For 16-bit weights.
  DeviceArray<ArenaChunk> rounded_chunks_;
  Buffer short_weights_;
  // For layer-wise rules.
  DeviceArray<ArenaTensor> arena_tensors_;
  DeviceArray<float> tensor_squares_, chunk_trust_;
};

}  // namespace

std::unique_ptr<Optimizer> make_gpu_optimizer(const OptimizerChoice& choice,
                                              const FiniteRules& rules, GpuDevice& device) {
  return std::make_unique<GpuOptimizer>(choice, rules, device);
}

}  // namespace penstock::gpu
