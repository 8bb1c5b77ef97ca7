// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/accesses.h"

#include <set>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <variant>

#include "tests/support/gpu/host_launch.h"

namespace penstock::gpu {
namespace {

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }
/// The number of elements of a tensor of rows and channels.
template <typename Call>
std::size_t elements(const Call& call) {
  return size(call.rows) * size(call.channels);
}
std::size_t mask_bytes(std::size_t count) { return (count + 7) / 8; }

/// Collects ranges. Ignores null pointers, which mean that a tensor is not wanted.
class Collector {
 public:
  template <typename T>
  void read(const T* data, std::size_t count = 1) {
    add(result.reads, data, count * sizeof(T));
  }
  void read(const void* data, std::size_t count, DType type) {
    add(result.reads, data, count * size_of(type));
  }
  template <typename T>
  void write(T* data, std::size_t count = 1) {
    add(result.writes, data, count * sizeof(T));
  }
  void write(void* data, std::size_t count, DType type) {
    add(result.writes, data, count * size_of(type));
  }
  template <typename T>
  void update(T* data, std::size_t count = 1) {
    read(data, count);
    write(data, count);
  }
  void update(void* data, std::size_t count, DType type, bool reads_it) {
    if (reads_it) read(data, count, type);
    write(data, count, type);
  }
  /// `count` elements of each tensor.
  void read_each(std::size_t count, const auto*... data) { (read(data, count), ...); }
  void write_each(std::size_t count, auto*... data) { (write(data, count), ...); }

  Accesses result;

 private:
  static void add(std::vector<MemoryRange>& ranges, const void* data, std::size_t bytes) {
    if (data != nullptr && bytes > 0)
      ranges.push_back({static_cast<const std::byte*>(data), bytes});
  }
};

/// Calls visit(first, count) for each run of adjacent chunks.
template <typename Visit>
void for_each_run(const ArenaChunk* chunks, std::int32_t count, const Visit& visit) {
  std::size_t first = 0, last = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    if (chunks[i].first != last) {
      if (last > first) visit(first, last - first);
      first = chunks[i].first;
    }
    last = chunks[i].first + chunks[i].count;
  }
  if (last > first) visit(first, last - first);
}

// Calls that set some members of the scalars read them all: the other members stay unchanged.
void collect(const SetStep& call, Collector& to) { to.update(call.scalars); }
void collect(const SetHyper& call, Collector& to) { to.update(call.scalars); }
void collect(const Normalise& call, Collector& to) {
  const std::size_t pixels = size(call.images) * size(call.pixels_per_image);
  to.read(call.pixels, pixels * size(call.channels), call.from);
  to.read(call.scalars);
  to.write(call.to, pixels * size(call.padded_channels), call.type);
}
void collect(const ReorderStem& call, Collector& to) {
  const std::size_t filters = size(call.filters);
  const std::size_t stem = filters * kStemKernel * kStemKernel * size(call.channels);
  const std::size_t blocks = filters * kBlockKernel * kBlockKernel * 4 * kBlockChannels;
  to.read(call.from, call.to_blocks ? stem : blocks, call.type);
  to.write(call.to, call.to_blocks ? blocks : stem, call.type);
}
void collect(const ScaleShift& call, Collector& to) {
  to.read(call.x, elements(call), call.type);
  to.read(call.residual, elements(call), call.type);
  to.read_each(size(call.channels), call.multiplier, call.addend, call.residual_multiplier,
               call.residual_addend);
  to.write(call.y, elements(call), call.type);
  to.write(call.mask, mask_bytes(elements(call)));
}
void collect(const ReluBackward& call, Collector& to) {
  to.read(call.dy, size(call.count), call.type);
  to.read(call.mask, mask_bytes(size(call.count)));
  if (call.mask == nullptr) to.read(call.y, size(call.count), call.type);
  to.update(call.dx, size(call.count), call.type, call.accumulate);
}
template <typename Call>
std::size_t partials(const Call& call) {
  return size(sum_blocks(call.rows, call.channels)) * size(call.channels);
}
void collect(const BatchNormSums& call, Collector& to) {
  to.read(call.x, elements(call), call.type);
  to.write(call.partial, 2 * partials(call));
}
void collect(const BatchNormFinish& call, Collector& to) {
  const std::size_t channels = size(call.channels);
  to.read(call.partial, 2 * size(call.blocks) * channels);
  to.read(call.pivot, channels, call.type);
  to.read_each(channels, call.scale, call.shift);
  for (float* running : {call.running_mean, call.running_variance}) to.update(running, channels);
  to.write_each(channels, call.mean, call.inverse_deviation, call.multiplier, call.addend);
  for (void* made : {call.short_multiplier, call.short_addend}) to.write(made, channels, call.type);
}
void collect(const BatchNormFromRunning& call, Collector& to) {
  const std::size_t channels = size(call.channels);
  to.read_each(channels, call.running_mean, call.running_variance, call.scale, call.shift);
  to.write_each(channels, call.multiplier, call.addend);
}
void collect(const BatchNormBackwardSums& call, Collector& to) {
  for (const void* given : {call.dy, call.x}) to.read(given, elements(call), call.type);
  to.read(call.mask, mask_bytes(elements(call)));
  to.read_each(size(call.channels), call.mean, call.inverse_deviation);
  to.write(call.masked, elements(call), call.type);
  to.write(call.partial, 2 * partials(call));
}
void collect(const BatchNormBackwardFinish& call, Collector& to) {
  const std::size_t channels = size(call.channels);
  to.read(call.partial, 2 * size(call.blocks) * channels);
  to.read_each(channels, call.scale, call.mean, call.inverse_deviation);
  to.write_each(channels, call.dscale, call.dshift, call.dy_factor, call.x_factor, call.constant);
}
void collect(const BatchNormBackwardApply& call, Collector& to) {
  for (const void* given : {call.dy, call.x, call.x2}) to.read(given, elements(call), call.type);
  to.read(call.mask, mask_bytes(elements(call)));
  to.read_each(size(call.channels), call.dy_factor, call.x_factor, call.constant, call.dy_factor2,
               call.x_factor2, call.constant2);
  to.update(call.dx, elements(call), call.type, call.accumulate);
  to.update(call.dx2, elements(call), call.type, call.accumulate);
}
void collect(const ColumnSums& call, Collector& to) {
  to.read(call.dy, elements(call), call.type);
  to.write(call.partial, partials(call));
}
void collect(const ColumnFinish& call, Collector& to) {
  to.read(call.partial, size(call.blocks) * size(call.channels));
  to.write(call.sums, size(call.channels));
}

std::size_t inputs(const PoolShape& shape) {
  return size(shape.images) * size(shape.height) * size(shape.width) * size(shape.channels);
}
std::size_t outputs(const PoolShape& shape) {
  return size(shape.images) * size(shape.out_height) * size(shape.out_width) * size(shape.channels);
}
void collect(const MaxPoolForward& call, Collector& to) {
  to.read(call.x, inputs(call.shape), call.type);
  to.read_each(size(call.shape.channels), call.multiplier, call.addend);
  to.write(call.y, outputs(call.shape), call.type);
  to.write(call.index, outputs(call.shape));
}
void collect(const MaxPoolBackward& call, Collector& to) {
  to.read(call.dy, outputs(call.shape), call.type);
  to.read(call.index, outputs(call.shape));
  to.update(call.dx, inputs(call.shape), call.type, call.accumulate);
}
void collect(const AvgPoolForward& call, Collector& to) {
  to.read(call.x, inputs(call.shape), call.type);
  to.write(call.y, outputs(call.shape), call.type);
}
void collect(const AvgPoolBackward& call, Collector& to) {
  to.read(call.dy, outputs(call.shape), call.type);
  to.update(call.dx, inputs(call.shape), call.type, call.accumulate);
}

void collect(const CopyChannels& call, Collector& to) {
  if (call.rows == 0) return;
  const std::size_t rows = size(call.rows), channels = size(call.channels);
  const std::size_t from_first = size(call.from_first) * size_of(call.type);
  to.read(static_cast<const std::byte*>(call.from) + from_first,
          (rows - 1) * size(call.from_channels) + channels, call.type);
  if (call.zero_rest) {
    to.write(call.to, rows * size(call.to_channels), call.type);
  } else {
    const std::size_t to_first = size(call.to_first) * size_of(call.type);
    to.update(static_cast<std::byte*>(call.to) + to_first,
              (rows - 1) * size(call.to_channels) + channels, call.type, call.accumulate);
  }
}
void collect(const LrnForward& call, Collector& to) {
  to.read(call.x, elements(call), call.type);
  to.write(call.y, elements(call), call.type);
}
void collect(const LrnBackward& call, Collector& to) {
  for (const void* given : {call.x, call.dy}) to.read(given, elements(call), call.type);
  to.update(call.dx, elements(call), call.type, call.accumulate);
}
void collect(const DropoutApply& call, Collector& to) {
  const std::size_t count = size(call.images) * size(call.channels) * size(call.pixels_per_image);
  to.read(call.x, count, call.type);
  to.read(call.scalars);
  to.update(call.y, count, call.type, call.accumulate);
}

void collect(const SoftmaxCrossEntropy& call, Collector& to) {
  const std::size_t count = size(call.images) * size(call.classes);
  to.read(call.logits, count, call.type);
  to.read(call.labels, size(call.images));
  to.read(call.scalars);
  to.write(call.dlogits, count, call.type);
  to.write_each(size(call.images), call.loss, call.above);
}
void collect(const SummariseStep& call, Collector& to) {
  to.read_each(size(call.images), call.loss, call.above);
  to.read(call.scalars);
  to.write(call.result);
}
void collect(const NarrowWeights& call, Collector& to) {
  to.read(call.from, call.count);
  to.write(call.to, call.count, call.type);
}
void collect(const WidenGradients& call, Collector& to) {
  to.read(call.chunks, size(call.chunk_count));
  to.read(call.scalars);
  for (const ArenaChunk& chunk : std::span(call.chunks, size(call.chunk_count))) {
    if (!chunk.flag) continue;
    to.read(static_cast<const std::byte*>(call.narrow) + chunk.first * size_of(call.type),
            chunk.count, call.type);
  }
  for_each_run(call.chunks, call.chunk_count,
               [&](std::size_t first, std::size_t count) { to.update(call.wide + first, count); });
}
void collect(const CheckFinite& call, Collector& to) {
  to.read(call.values, call.count);
  to.write(call.partial, size(kFiniteBlocks));
}
void collect(const SumSquares& call, Collector& to) {
  to.read(call.chunks, size(call.chunk_count));
  to.read(call.scalars);
  to.write(call.squares, 2 * size(call.chunk_count));
  for_each_run(call.chunks, call.chunk_count, [&](std::size_t first, std::size_t count) {
    to.read_each(count, call.weights + first, call.gradients + first);
  });
}
void collect(const FindTrust& call, Collector& to) {
  to.read(call.tensors, size(call.tensor_count));
  to.read(call.scalars);
  to.read(call.squares, 2 * size(call.chunk_count));
  to.write(call.trust, size(call.chunk_count));
}
void collect(const UpdateWeights& call, Collector& to) {
  if (call.rule == UpdateRule::lars) to.read(call.trust, size(call.chunk_count));
  to.read(call.chunks, size(call.chunk_count));
  to.read(call.scalars);
  to.read(call.finite, size(kFiniteBlocks));
  to.write(call.squares, size(call.chunk_count));
  for_each_run(call.chunks, call.chunk_count, [&](std::size_t first, std::size_t count) {
    to.read(call.gradients + first, count);
    for (float* updated : {call.weights, call.state[0], call.state[1]}) {
      if (updated != nullptr) to.update(updated + first, count);
    }
  });
}
void collect(const SummariseUpdate& call, Collector& to) {
  to.read(call.squares, size(call.chunk_count));
  to.read(call.finite, size(kFiniteBlocks));
  to.read(call.scalars);
  to.update(call.result);
}
void collect(const AdaptLossScale& call, Collector& to) {
  to.read(call.finite, size(kFiniteBlocks));
  to.update(call.scalars);
}
void collect(const SumSlices& call, Collector& to) {
  for (std::int32_t rank = 0; rank < call.ranks; ++rank) {
    auto* const slice =
        static_cast<std::byte*>(call.tensors[rank]) + call.first * size_of(call.type);
    to.read(slice, call.count, call.type);
    if (call.root < 0 || call.root == rank) to.write(slice, call.count, call.type);
  }
}
void collect(const WidenSums& call, Collector& to) {
  to.read(call.from, call.count, call.type);
  to.write(call.to, call.count);
}

using Ids = std::vector<DnnTensorId>;
Operands operands(const DnnConvolution& op) {
  return {op.beta == 0 ? Ids{op.x, op.w} : Ids{op.x, op.w, op.y}, {op.y}};
}
Operands operands(const DnnConvolutionBackwardData& op) {
  return {op.beta == 0 ? Ids{op.dy, op.w} : Ids{op.dy, op.w, op.dx}, {op.dx}};
}
Operands operands(const DnnConvolutionBackwardFilter& op) { return {{op.x, op.dy}, {op.dw}}; }
Operands operands(const DnnPointwise& op) {
  return {op.b == kNoTensor ? Ids{op.x} : Ids{op.x, op.b}, {op.y}};
}
Operands operands(const DnnGenerateStatistics& op) { return {{op.x}, {op.sum, op.square_sum}}; }
Operands operands(const DnnBatchNormBackwardWeights& op) {
  return {{op.x, op.dy, op.mean, op.inverse_deviation, op.scale},
          {op.dscale, op.dshift, op.dy_factor, op.x_factor, op.constant}};
}

}  // namespace

std::size_t Accesses::bytes() const {
  std::size_t sum = 0;
  for (const auto* ranges : {&reads, &writes}) {
    for (const MemoryRange& range : *ranges) sum += range.bytes;
  }
  return sum;
}

const std::vector<std::string>& kernel_names() {
  static const auto names = []<typename... Calls>(std::type_identity<std::variant<Calls...>>) {
    constexpr std::size_t kNamespace = std::string_view("penstock::gpu::").size();
    return std::vector<std::string>{demangled(typeid(Calls).name()).substr(kNamespace)...};
  }(std::type_identity<KernelCall>{});
  return names;
}

Operands operands_of(const DnnOperation& operation) {
  return std::visit([](const auto& op) { return operands(op); }, operation);
}

Accesses accesses_of(const KernelCall& call) {
  Collector to;
  std::visit([&](const auto& kernel) { collect(kernel, to); }, call);
  return to.result;
}

Accesses accesses_of(const DnnGraph& graph, std::span<std::byte* const> tensors) {
  std::set<DnnTensorId> reads, writes;
  for (const DnnOperation& operation : graph.operations) {
    const Operands of = operands_of(operation);
    reads.insert(of.reads.begin(), of.reads.end());
    writes.insert(of.writes.begin(), of.writes.end());
  }
  Collector to;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const DnnTensor& tensor = graph.tensors[i];
    const auto id = static_cast<DnnTensorId>(i);
    if (tensor.is_virtual) continue;
    if (reads.contains(id)) to.read(tensors[i], tensor.bytes());
    if (writes.contains(id)) to.write(tensors[i], tensor.bytes());
  }
  return to.result;
}

}  // namespace penstock::gpu
