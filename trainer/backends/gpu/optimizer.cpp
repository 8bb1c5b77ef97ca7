// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/optimizer.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

/// The entry's rule as a kernel knows it.
UpdateWeights kernel_of(const OptimizerChoice& choice) {
  choice.entry.make(choice.options);  // checks the options
  const auto real = [&](std::string_view name) { return choice.options.real(name); };
  const std::string_view name = choice.entry.name;
  if (name == "sgd") return {.rule = UpdateRule::sgd};
  if (name == "momentum") {
    return {.rule = choice.options.flag("nesterov") ? UpdateRule::nesterov : UpdateRule::momentum,
            .constants = {real("momentum")}};
  }
  if (name == "rmsprop") {
    return {.rule = UpdateRule::rmsprop,
            .constants = {real("decay"), real("momentum"), real("epsilon")}};
  }
  if (name == "adam") {
    return {.rule = UpdateRule::adam, .constants = {real("beta1"), real("beta2"), real("epsilon")}};
  }
  throw Unavailable("the gpu device has no kernel for the optimizer '" + std::string(name) +
                    "'; it has sgd, momentum, rmsprop and adam");
}

class GpuOptimizer final : public Optimizer {
 public:
  GpuOptimizer(const OptimizerChoice& choice, bool checks_finite, GpuDevice& device)
      : kernel_(kernel_of(choice)),
        slots_(choice.entry.slots),
        checks_finite_(checks_finite),
        device_(device) {}

  std::size_t slots() const noexcept override { return slots_; }

  void prepare(const ParameterSet& set) override {
    if (squares_.bytes().data() != nullptr || set.parameters.empty()) return;
    std::vector<ArenaChunk> chunks = chunks_of(set);
    kernel_.chunk_count = static_cast<std::int32_t>(chunks.size());
    chunks_ = upload(chunks.data(), chunks.size() * sizeof(ArenaChunk));
    kernel_.chunks = reinterpret_cast<const ArenaChunk*>(chunks_.bytes().data());
    for (ArenaChunk& chunk : chunks) chunk.flag = true;
    averaging_chunks_ = upload(chunks.data(), chunks.size() * sizeof(ArenaChunk));
    const StepScalars scalars;
    averaging_scalars_ = upload(&scalars, sizeof(scalars));
    const std::vector<float> zeros(set.weights.count);
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      state_[slot] = upload(zeros.data(), zeros.size() * sizeof(float));
      kernel_.state[slot] = reinterpret_cast<float*>(state_[slot].bytes().data());
    }
    squares_ = device_.allocate(chunks.size() * sizeof(float), MemoryKind::device);
    kernel_.squares = reinterpret_cast<float*>(squares_.bytes().data());
    if (checks_finite_) {
      finite_ = device_.allocate(kFiniteBlocks * sizeof(std::int32_t), MemoryKind::device);
      kernel_.finite = reinterpret_cast<const std::int32_t*>(finite_.bytes().data());
    }
    kernel_.weights = static_cast<float*>(set.weights.data);
    kernel_.gradients = static_cast<const float*>(set.gradients.data);
    kernel_.scalars = device_.scalars();
    warm_up();
  }

  void set(const Hyper& hyper, Stream& stream) override {
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
    launch(update, set.gradients.count, stream, result);
  }

  /// As gradient descent: w -= share * (-scale * other + 1 * w), where all weights decay.
  void average(const ParameterSet& set, const Tensor& other, float scale, float share,
               Stream& stream) override {
    if (set.parameters.empty()) return;
    PENSTOCK_ASSERT(kernel_.squares != nullptr && other.count == set.weights.count);
    auto* const scalars = reinterpret_cast<StepScalars*>(averaging_scalars_.bytes().data());
    Driver& driver = device_.driver();
    const StreamHandle on = GpuStream::of(stream).handle();
    driver.launch(on, SetHyper{scalars, {.learning_rate = share, .weight_decay = 1}});
    driver.launch(on, UpdateWeights{.rule = UpdateRule::sgd,
                                    .weights = static_cast<float*>(set.weights.data),
                                    .gradients = static_cast<const float*>(other.data),
                                    .gradient_scale = -scale,
                                    .chunks = reinterpret_cast<const ArenaChunk*>(
                                        averaging_chunks_.bytes().data()),
                                    .chunk_count = kernel_.chunk_count,
                                    .scalars = scalars,
                                    .squares = kernel_.squares});
  }

  Tensor state(const ParameterSet& set, std::size_t parameter, std::size_t slot) override {
    PENSTOCK_ASSERT(slot < slots_);
    prepare(set);
    const Tensor& weight = set.parameters[parameter].weight;
    return {kernel_.state[slot] + offset_of(set, weight), weight.count, DType::f32};
  }

 private:
  /// Updates 64 weights of its own: kernels are loaded at their first launch, which must not happen
  /// in a recording.
  void warm_up() {
    constexpr std::size_t kWeights = 64;
    const std::array<float, 4 * kWeights> zeros{};
    const ArenaChunk chunk{0, kWeights, true};
    const Buffer arenas = upload(zeros.data(), sizeof(zeros)),
                 table = upload(&chunk, sizeof(chunk));
    const Buffer squares = upload(zeros.data(), sizeof(float));
    const Buffer pinned = device_.allocate(sizeof(StepResult), MemoryKind::pinned);
    auto* const floats = reinterpret_cast<float*>(arenas.bytes().data());
    UpdateWeights update = kernel_;
    update.weights = floats;
    update.gradients = floats + kWeights;
    update.state[0] = floats + 2 * kWeights;
    update.state[1] = floats + 3 * kWeights;
    update.chunks = reinterpret_cast<const ArenaChunk*>(table.bytes().data());
    update.chunk_count = 1;
    update.squares = reinterpret_cast<float*>(squares.bytes().data());
    GpuStream stream(device_.driver());
    set({}, stream);
    launch(update, kWeights, stream, *::new (pinned.bytes().data()) StepResult);
    GpuEvent done(device_.driver());
    stream.record(done);
    done.wait_until(Time::max());
  }

  void launch(const UpdateWeights& update, std::size_t count, Stream& stream, StepResult& result) {
    Driver& driver = device_.driver();
    const StreamHandle on = GpuStream::of(stream).handle();
    if (checks_finite_) {
      driver.launch(on, CheckFinite{update.gradients, count,
                                    reinterpret_cast<std::int32_t*>(finite_.bytes().data())});
    }
    driver.launch(on, update);
    driver.launch(on, SummariseUpdate{update.squares, update.chunk_count, update.finite,
                                      update.scalars, &result});
  }

  static std::size_t offset_of(const ParameterSet& set, const Tensor& weight) {
    return static_cast<std::size_t>(static_cast<float*>(weight.data) -
                                    static_cast<float*>(set.weights.data));
  }
  /// Flagged where weights decay.
  static std::vector<ArenaChunk> chunks_of(const ParameterSet& set) {
    std::vector<ArenaChunk> chunks;
    for (const Parameter& parameter : set.parameters) {
      const std::size_t offset = offset_of(set, parameter.weight);
      for (std::size_t first = 0; first < parameter.weight.count; first += kChunkElements) {
        const auto count = static_cast<std::uint32_t>(
            std::min<std::size_t>(kChunkElements, parameter.weight.count - first));
        chunks.push_back({offset + first, count, parameter.spec.decays()});
      }
    }
    return chunks;
  }
  Buffer upload(const void* data, std::size_t bytes) {
    Buffer buffer = device_.allocate(bytes, MemoryKind::device);
    device_.copy_now(buffer.bytes().data(), static_cast<const std::byte*>(data), bytes);
    return buffer;
  }

  UpdateWeights kernel_;  ///< all but the scale of the gradients
  const std::size_t slots_;
  const bool checks_finite_;
  GpuDevice& device_;
  Buffer chunks_, squares_, finite_;
  Buffer averaging_chunks_, averaging_scalars_;  ///< of average(): all chunks decay
  std::array<Buffer, 2> state_;
};

}  // namespace

std::unique_ptr<Optimizer> make_gpu_optimizer(const OptimizerChoice& choice, bool checks_finite,
                                              GpuDevice& device) {
  return std::make_unique<GpuOptimizer>(choice, checks_finite, device);
}

}  // namespace penstock::gpu
