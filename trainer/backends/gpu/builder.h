// SPDX-License-Identifier: Apache-2.0
// Turns a graph into the schedule of one phase, without a device; compiler/graph_builder.h says
// how. The executable widens gradients of 16 bits.
//
// Activations are laid out as N, H, W, C in the type of the precision. Normalising, adding and the
// ReLU take one pass over memory. If the fusion plan says so, a convolution takes over the batch
// norms around it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/backend.h"
#include "trainer/backends/compiler/graph_builder.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/fusion.h"
#include "trainer/backends/gpu/layouts.h"
#include "trainer/backends/gpu/schedule.h"

namespace penstock::gpu {

/// The type of activations and of the operands of matrix products.
DType dtype_of(Precision precision);
/// True if convolutions read 16-bit copies of the weights and write 16-bit gradients.
bool is_short(Precision precision);

/// The chunks that WidenGradients processes: the contents of Home::tables.
std::vector<ArenaChunk> short_chunks(const Layouts& layouts);
/// The call that widens the gradients of a range of chunks. It runs after the operations that
/// complete these gradients. Gradients of weights are in 16 bits, all others in f32; all are
/// multiplied by the loss scale.
WidenGradients widen_gradients(const Homes& homes, DType type, std::size_t first_chunk,
                               std::size_t chunk_count);

class Builder : compiler::GraphBuilder {
 public:
  /// Borrows all arguments. `fusion` fuses nothing except for training in f16.
  Builder(const Graph& graph, const ExecutableSpec& spec, Phase phase, const Layouts& layouts,
          const FusionPlan& fusion, Schedule& schedule);
  void build();

 private:
  /// A gradient that an operation writes. The first operation sets it, later ones add to it.
  struct Target {
    ValueId value = kNoValue;
    bool accumulate = false;
  };
  /// The forward pass of a batch norm: y = x * multiplier + addend.
  struct Normalised {
    NodeId node = Graph::kInput;
    ValueId x = kNoValue, mean = kNoValue, inverse_deviation = kNoValue;
    ValueId multiplier = kNoValue, addend = kNoValue;
    ValueId short_multiplier = kNoValue, short_addend = kNoValue;  ///< set if the reader normalises
  };
  /// The input of a ReLU: a batch norm, and the tensor or norm that is added to it, if any.
  struct Activated {
    Normalised norm;
    std::optional<Normalised> other{};
    ValueId residual = kNoValue;
  };
  /// The factors of a batch norm's backward pass: dx = dy_factor * dy + x_factor * x + constant.
  struct Factors {
    ValueId dy = kNoValue, x = kNoValue, constant = kNoValue;
  };

  // One overload per operator: adds its forward operations, sets output(node) and registers its
  // backward function.
  void visit(NodeId node, const Conv2d& op);
  void visit(NodeId node, const BatchNorm& op);
  void visit(NodeId node, const Relu& op);
  void visit(NodeId node, const MaxPool& op);
  void visit(NodeId node, const AvgPool& op);
  void visit(NodeId node, const GlobalAvgPool& op);
  void visit(NodeId node, const Add& op);
  void visit(NodeId node, const Concat& op);
  void visit(NodeId node, const PadChannels& op);
  void visit(NodeId node, const Linear& op);
  void visit(NodeId node, const Lrn& op);
  void visit(NodeId node, const Dropout& op);

  // convolution.cpp
  using Operand = std::pair<DnnTensorId, ValueId>;
  /// Leaves out operands with the tensor kNoTensor.
  void compute(DnnGraph graph, const std::vector<Operand>& operands);
  void convolve(NodeId node, const ConvolutionShape& shape, bool bias);
  void convolve_backward(NodeId node, const ConvolutionShape& shape, bool bias, ValueId x,
                         ValueId w);
  void add_bias_gradient(NodeId node, ValueId dy);
  ValueId new_stem_weights(const ConvolutionShape& shape);
  /// Changes the weights' order to that for an image in blocks of pixels, or back. `own` has the
  /// parameter's order.
  void reorder_stem(NodeId node, ValueId own, ValueId blocks, bool to_blocks);
  bool reads_blocks(NodeId node) const { return fusion_.stem == node; }

  // convolution.cpp: with the batch norms around them
  /// The fusion of the first reader of `last`: it may compute `last` or take over its backward
  /// pass.
  NodeFusion behind(NodeId last) const { return fusion_.of(structure_.first_reader(last)); }
  /// The sums of a convolution's output.
  struct Sums {
    ValueId sum = kNoValue, square_sum = kNoValue;
  };
  Sums new_sums(NodeId node);
  /// Returns the convolution's input, or the batch norm's if u is never written.
  ValueId convolve_forward(NodeId node, const ConvolutionShape& shape, ValueId w, ValueId y);
  void masked_backward_data(NodeId node, const ConvolutionShape& shape, ValueId dy, ValueId w);
  void add_norm_operands(const BatchNormTensors& tensors, const Normalised& norm,
                         std::vector<Operand>& operands);

  // batch_norm.cpp
  Normalised normalise(NodeId node, const BatchNorm& op);
  ValueId batch_norm_sums(NodeId node, ValueId x);
  ValueId activate(NodeId last, bool relu, const Activated& from);
  ValueId add_scale_shift(NodeId last, bool relu, const Activated& from, bool wants_mask);
  void apply_factors(const Normalised& norm, const Factors& factors, ValueId dy, ValueId mask);
  void apply_both_factors(const Normalised& norm, const Normalised& other, ValueId dy);
  /// A norm with the gradient of its input. x is kNoValue: no norm.
  struct Application {
    ValueId x = kNoValue, dx = kNoValue;
    Factors factors{};
  };
  void add_application(NodeId node, ValueId dy, ValueId mask, bool accumulate,
                       const Application& first, const Application& second);
  Factors batch_norm_factors(const Normalised& norm, ValueId dy, ValueId mask, ValueId masked);
  void finish_sum(NodeId node, const Normalised& norm, NodeId other);
  void batch_norm_backward(NodeId last, const Normalised& norm, ValueId mask);
  void sum_backward(NodeId last, const Activated& from, NodeId other, ValueId mask);

  /// The operands of ScaleShift; kNoValue: none.
  struct ScaleShiftOperands {
    ValueId x = kNoValue, y = kNoValue;
    ValueId multiplier = kNoValue, addend = kNoValue;
    ValueId residual = kNoValue, residual_multiplier = kNoValue, residual_addend = kNoValue;
    ValueId mask = kNoValue;
    bool relu = false;
  };
  /// `node` has the shape of y.
  void scale_shift(NodeId node, const ScaleShiftOperands& of);
  void copy_channels(NodeId node, CopyChannels shape, ValueId from, ValueId to);
  void relu_backward(NodeId node, ValueId dy, Target dx);
  void pool(NodeId node, const Window& window, bool count_padding);
  void slice_backward(NodeId node, std::int32_t first, NodeId input);

  void add_loss();

  // Values.
  std::int64_t rows_of(NodeId node) const;
  std::size_t elements_of(NodeId node) const;
  ValueId new_activation(NodeId node);
  ValueId new_floats(std::size_t count) { return schedule_.add_value(count * sizeof(float)); }
  ValueId new_mask(NodeId node);
  ValueId output(NodeId node);
  /// The image in the type of the precision, with `channels` channels; `blocks`: as blocks of 2x2
  /// pixels.
  ValueId image(std::int32_t channels, bool blocks = false);
  PoolShape pool_shape(NodeId node, const Window& window) const;

  // Gradients.
  ValueId gradient_of(NodeId node) const { return gradient_values_[node]; }
  bool has_gradient(NodeId node) const { return gradient_of(node) != kNoValue; }
  Target target(NodeId node);
  /// Makes `value` a part of the node's gradient. With `keep` its memory stays unchanged; otherwise
  /// the gradient may reuse that memory.
  void give(NodeId node, ValueId value, bool keep);

  // Parameters.
  ValueId parameter(NodeId node, Role role, Home home);
  ValueId float_parameter(NodeId node, Role role) { return parameter(node, role, Home::weights); }
  ValueId float_gradient(NodeId node, Role role) { return parameter(node, role, Home::gradients); }
  void completes(NodeId node, Role role);
  ValueId running(NodeId node, Role role);

  const Layouts& layouts_;
  const FusionPlan& fusion_;
  Schedule& schedule_;
  const DType type_;
  const bool short_;

  ValueId scalars_ = kNoValue;
  compiler::PerNode<ValueId> gradient_values_;
  compiler::PerNode<std::optional<Normalised>> waiting_;   // norms that a later addition computes
  compiler::PerNode<std::optional<Activated>> activated_;  // of the ReLU
  compiler::PerNode<ValueId> sums_;                        // of the convolution
  compiler::PerNode<std::optional<Factors>> factors_;      // factors that are already computed
};

}  // namespace penstock::gpu
