// SPDX-License-Identifier: Apache-2.0
// Tests the patterns as graphs: which tensors have memory, and that all tensors are computed in
// order.
#include "trainer/backends/gpu/dnn_patterns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "tests/support/gpu/accesses.h"

namespace penstock::gpu {
namespace {

constexpr ConvolutionShape kShape{.images = 8,
                                  .channels = 64,
                                  .height = 14,
                                  .width = 10,
                                  .filters = 32,
                                  .window = {3, 3, 2, 1, 1, 1, 1}};

using Ids = std::vector<DnnTensorId>;

/// Inputs and outputs, derived from the operations alone.
struct Flow {
  std::set<DnnTensorId> inputs, outputs;
  bool in_order = true;  ///< no tensor is written twice or read before it is written
};
Flow flow_of(const DnnGraph& graph) {
  Flow flow;
  for (const DnnOperation& operation : graph.operations) {
    const Operands use = operands_of(operation);
    for (const DnnTensorId id : use.reads) {
      if (!flow.outputs.contains(id)) flow.inputs.insert(id);
    }
    for (const DnnTensorId id : use.writes) {
      flow.in_order &= !flow.inputs.contains(id) && flow.outputs.insert(id).second;
    }
  }
  return flow;
}

/// Expects that exactly `inputs` and `outputs` have memory. Ignores kNoTensor among them.
void expect_memory(const DnnGraph& graph, const Ids& inputs, const Ids& outputs) {
  const Flow flow = flow_of(graph);
  EXPECT_TRUE(flow.in_order) << to_text(graph);
  std::set<DnnTensorId> in(inputs.begin(), inputs.end()), out(outputs.begin(), outputs.end());
  in.erase(kNoTensor);
  out.erase(kNoTensor);
  EXPECT_EQ(flow.inputs, in) << to_text(graph);
  EXPECT_TRUE(std::ranges::includes(flow.outputs, out)) << to_text(graph);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const auto id = static_cast<DnnTensorId>(i);
    EXPECT_EQ(graph.tensor(id).is_virtual, !in.contains(id) && !out.contains(id))
        << "tensor " << id << " of " << to_text(graph);
  }
}

Ids inputs_of(const BatchNormTensors& norm) {
  return {norm.x, norm.mean, norm.inverse_deviation, norm.scale, norm.shift};
}
Ids outputs_of(const BatchNormTensors& norm) {
  return {norm.dscale, norm.dshift, norm.dy_factor, norm.x_factor, norm.constant};
}
Ids together(std::initializer_list<Ids> lists) {
  Ids all;
  for (const Ids& ids : lists) all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

TEST(DnnPatterns, PlainConvolutionsHaveTheShapesOfTheirTensors) {
  const DnnPattern forward = conv_forward(kShape);
  const std::array<std::int64_t, 4> x{8, 64, 14, 10}, w{32, 64, 3, 3}, y{8, 32, 7, 5};
  EXPECT_EQ(forward.graph.tensor(forward.x).shape, x);
  EXPECT_EQ(forward.graph.tensor(forward.w).shape, w);
  EXPECT_EQ(forward.graph.tensor(forward.y).shape, y);
  expect_memory(forward.graph, {forward.x, forward.w}, {forward.y});
  const DnnPattern data = conv_backward_data(kShape, 0), added = conv_backward_data(kShape, 1);
  EXPECT_EQ(std::get<DnnConvolutionBackwardData>(added.graph.operations[0]).beta, 1);
  expect_memory(data.graph, {data.dy, data.w}, {data.dx});
  const DnnPattern filter = conv_backward_filter(kShape);
  EXPECT_EQ(filter.graph.tensor(filter.dw).shape, w);
  expect_memory(filter.graph, {filter.x, filter.dy}, {filter.dw});
}

TEST(DnnPatterns, GroupsDivideTheWeightsChannels) {
  ConvolutionShape shape = kShape;
  shape.groups = 2;
  const DnnPattern forward = conv_forward(shape);
  EXPECT_EQ(forward.graph.tensor(forward.w).shape, (std::array<std::int64_t, 4>{32, 32, 3, 3}));
}

TEST(DnnPatterns, PaddingsOfTheTwoSidesCountEach) {
  ConvolutionShape shape = kShape;
  shape.window = {2, 2, 1, 1, 0, 0, 0};
  EXPECT_EQ(shape.out_height(), 14);
  EXPECT_EQ(shape.out_width(), 9);
}

TEST(DnnPatterns, FusedForwardKeepsOnlyWhatItNames) {
  const DnnPattern plain = conv_statistics(kShape);
  expect_memory(plain.graph, {plain.x, plain.w}, {plain.y, plain.sum, plain.square_sum});
  const DnnPattern norm = normalised_conv_statistics(kShape);
  expect_memory(norm.graph, {norm.x, norm.scale, norm.shift, norm.w},
                {norm.y, norm.sum, norm.square_sum});
  for (const bool dual : {false, true}) {
    const DnnPattern block = residual_normalised_conv_statistics(kShape, dual);
    EXPECT_EQ(block.residual_scale != kNoTensor, dual);
    expect_memory(block.graph,
                  {block.x, block.scale, block.shift, block.residual, block.residual_scale,
                   block.residual_shift, block.w},
                  {block.u, block.y, block.sum, block.square_sum});
  }
}

TEST(DnnPatterns, FusedBackwardKeepsOnlyWhatItNames) {
  const DnnPattern filter = normalised_conv_backward_filter(kShape);
  expect_memory(filter.graph, {filter.x, filter.scale, filter.shift, filter.dy}, {filter.dw});
  for (const bool add : {false, true}) {
    for (const Shortcut shortcut : {Shortcut::none, Shortcut::tensor, Shortcut::batch_norm}) {
      const DnnPattern data = conv_backward_data_batch_norm(kShape, add, shortcut);
      EXPECT_EQ(data.addend != kNoTensor, add);
      EXPECT_EQ(data.shortcut != kNoTensor, shortcut == Shortcut::tensor);
      EXPECT_EQ(data.shortcut_norm.x != kNoTensor, shortcut == Shortcut::batch_norm);
      expect_memory(
          data.graph,
          together({{data.dy, data.w, data.addend, data.shortcut},
                    inputs_of(data.norm),
                    inputs_of(data.shortcut_norm)}),
          together({{data.masked}, outputs_of(data.norm), outputs_of(data.shortcut_norm)}));
    }
  }
}

TEST(DnnPatterns, VariantsHaveTextsOfTheirOwn) {
  std::set<std::string> texts;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    ConvolutionShape shape = kShape;
    shape.dtype = dtype;
    for (const float beta : {0.0F, 1.0F}) {
      texts.insert(to_text(conv_backward_data(shape, beta).graph));
    }
    texts.insert(to_text(residual_normalised_conv_statistics(shape, false).graph));
    texts.insert(to_text(residual_normalised_conv_statistics(shape, true).graph));
  }
  EXPECT_EQ(texts.size(), 12U);
}

TEST(DnnPatterns, ProductsOfF32AreThoseOfConvolutionsAlone) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    ConvolutionShape shape = kShape;
    shape.dtype = dtype;
    for (const DnnPattern& pattern :
         {conv_forward(shape), conv_backward_data(shape, 0), conv_backward_filter(shape),
          conv_statistics(shape), normalised_conv_backward_filter(shape)}) {
      EXPECT_EQ(multiplies_f32(pattern.graph), dtype == DType::f32) << to_text(pattern.graph);
    }
  }
  DnnGraph sum;
  const DnnTensorId x = sum.add({.shape = {1, 1, 1, 1}, .dtype = DType::f32});
  sum.operations.push_back(DnnPointwise{PointwiseMode::multiply, x, x, x});
  EXPECT_FALSE(multiplies_f32(sum)) << "multiplying values is no product of matrices";
}

}  // namespace
}  // namespace penstock::gpu
