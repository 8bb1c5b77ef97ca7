// SPDX-License-Identifier: Apache-2.0
// Measures the gradients of the weights of ResNet-50's convolutions in bf16 on AMX tiles, for 32
// images on all cores: ours and oneDNN's. Interleave both:
//   penstock_micro --benchmark_filter=weight_gradient --benchmark_repetitions=15
//     --benchmark_enable_random_interleaving=true --benchmark_min_time=0.01
#include <benchmark/benchmark.h>
#include <omp.h>

#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <vector>

#include "trainer/backends/cpu/instruction_sets.h"
#include "trainer/backends/cpu/onednn.h"
#include "trainer/backends/cpu/weight_gradient.h"

namespace penstock::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

constexpr std::int32_t kImages = 32;

/// Arguments: channels of the input and of the output, side of the input, side of the filter,
/// stride.
struct Convolution {
  explicit Convolution(const benchmark::State& state) {
    const auto argument = [&](std::size_t i) { return static_cast<std::int32_t>(state.range(i)); };
    const std::int32_t side = argument(2), filter = argument(3), stride = argument(4);
    const std::int32_t before = filter / 2, out = (side + 2 * before - filter) / stride + 1;
    const std::int32_t after = (out - 1) * stride + filter - side - before;
    shape = {kImages,
             {side, side, argument(0)},
             {out, out, argument(1)},
             {filter, filter, stride, before, before, after, after}};
    x.resize(kImages * shape.in.elements());
    gradient_y.resize(kImages * shape.out.elements());
    weights.resize(static_cast<std::size_t>(shape.in.channels) *
                   static_cast<std::size_t>(shape.out.channels * filter * filter));
  }

  ConvolutionShape shape;
  std::vector<std::uint16_t> x, gradient_y;
  std::vector<float> weights;
};

bool has_tiles(benchmark::State& state) {
  limit_instruction_sets(kEveryInstructionSet);
  if (uses_amx()) return true;
  state.SkipWithError("this CPU has no AMX tiles for bf16");
  return false;
}

void ours(benchmark::State& state) {
  if (!has_tiles(state)) return;
  Convolution conv(state);
  const WeightGradient gradient(conv.shape, omp_get_max_threads());
  const std::unique_ptr<std::byte, decltype(&std::free)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, gradient.scratch_bytes())), &std::free);
  for (auto _ : state) {
    gradient.run(conv.x.data(), conv.gradient_y.data(), scratch.get(), conv.weights.data(),
                 nullptr);
  }
}

void onednns(benchmark::State& state) {
  if (!has_tiles(state)) return;
  Convolution conv(state);
  const auto& [images, in, out, window] = conv.shape;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc source({images, in.channels, in.height, in.width}, Type::bf16, Tag::nhwc),
      result({images, out.channels, out.height, out.width}, Type::bf16, Tag::nhwc);
  const memory::dims dims{out.channels, in.channels, window.kernel_h, window.kernel_w};
  const memory::dims strides{window.stride, window.stride}, begin{window.top, window.left},
      end{window.bottom, window.right};
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const auto forward = onednn::forward<dnnl::convolution_forward>(
      engine, {}, dnnl::prop_kind::forward_training, kDirect, source,
      memory::desc(dims, Type::bf16, Tag::any), memory::desc(), result, strides, begin, end);
  const auto weights = onednn::backward<dnnl::convolution_backward_weights>(
      engine, {}, forward, kDirect, source, memory::desc(dims, Type::f32, Tag::any), memory::desc(),
      result, strides, begin, end);
  const dnnl::primitive primitive(weights);
  const std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, memory(source, engine, conv.x.data())},
      {DNNL_ARG_DIFF_DST, memory(result, engine, conv.gradient_y.data())},
      {DNNL_ARG_DIFF_WEIGHTS, memory(weights.diff_weights_desc(), engine)}};
  for (auto _ : state) {
    primitive.execute(stream, arguments);
    stream.wait();
  }
  state.SetLabel(weights.impl_info_str());
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
           {3, 64, 224, 7, 2},    {64, 64, 56, 1, 1},    {64, 256, 56, 1, 1},
           {256, 64, 56, 1, 1},   {128, 512, 28, 1, 1},  {512, 128, 28, 1, 1},
           {256, 1024, 14, 1, 1}, {1024, 256, 14, 1, 1}, {512, 2048, 7, 1, 1},
           {2048, 512, 7, 1, 1},  {64, 64, 56, 3, 1},    {128, 128, 28, 3, 1},
           {256, 256, 14, 3, 1},  {512, 512, 7, 3, 1},   {128, 128, 56, 3, 2},
           {256, 256, 28, 3, 2},  {512, 512, 14, 3, 2},  {256, 512, 56, 1, 2},
           {512, 1024, 28, 1, 2}, {1024, 2048, 14, 1, 2}}) {
    benchmark->Args(shape);
  }
}

BENCHMARK(ours)->Name("weight_gradient/ours")->Apply(shapes);
BENCHMARK(onednns)->Name("weight_gradient/oneDNN")->Apply(shapes);

}  // namespace
}  // namespace penstock::cpu
