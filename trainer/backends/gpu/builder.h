// SPDX-License-Identifier: Apache-2.0
// Turns a graph into the schedule of one phase, without a device. Operators are visited once, in
// order: each adds its forward operations and leaves behind what adds its backward ones, which are
// called in reverse order once the loss is there. Gradients of 16 bits are widened by the
// executable.
//
// Activations lie as N, H, W, C in the type of the precision. A ReLU is part of the operator before
// it wherever that has no other reader; a batch norm whose only reader is an addition is computed
// by the addition, so that normalising, adding and the ReLU are one pass over memory. Where the
// fusion plan says so, a convolution takes over the batch norms around it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/backend.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/fusion.h"
#include "trainer/backends/gpu/layouts.h"
#include "trainer/backends/gpu/schedule.h"
#include "trainer/backends/gpu/structure.h"

namespace penstock::gpu {

/// Of activations and of the operands of matrix products.
DType dtype_of(Precision precision);
/// Convolutions read short copies of the weights and write short gradients.
bool is_short(Precision precision);

/// What WidenGradients walks over: the contents of Home::tables.
std::vector<ArenaChunk> short_chunks(const Layouts& layouts);
/// Of the chunks of some parameters, behind the operations that complete their gradients: those of
/// weights are there in 16 bits, all others in f32; all of them times the loss scale.
WidenGradients widen_gradients(const Homes& homes, DType type, std::size_t first_chunk,
                               std::size_t chunk_count);

class Builder {
 public:
  /// All are borrowed. `fusion` is empty but for training in f16.
  Builder(const Graph& graph, const ExecutableSpec& spec, Phase phase, const Layouts& layouts,
          const FusionPlan& fusion, Schedule& schedule);
  void build();

 private:
  /// A gradient that an operation writes: the first one sets it, later ones add to it.
  struct Target {
    ValueId value = kNoValue;
    bool accumulate = false;
  };
  /// A batch norm's forward: y = x * multiplier + addend.
  struct Normalised {
    NodeId node = Graph::kInput;
    ValueId x = kNoValue, mean = kNoValue, inverse_deviation = kNoValue;
    ValueId multiplier = kNoValue, addend = kNoValue;
    ValueId short_multiplier = kNoValue, short_addend = kNoValue;  ///< where its reader normalises
  };
  /// What a ReLU is computed from: a batch norm, and what is added to it, if anything.
  struct Activated {
    Normalised norm;
    std::optional<Normalised> other{};
    ValueId residual = kNoValue;
  };
  /// The factors of its backward: dx = dy_factor * dy + x_factor * x + constant.
  struct Factors {
    ValueId dy = kNoValue, x = kNoValue, constant = kNoValue;
  };

  // One overload an operator: adds its forward operations, sets output(node) and registers
  // backward.
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
  /// Operands of kNoTensor are left out.
  void compute(DnnGraph graph, const std::vector<Operand>& operands);
  void convolve(NodeId node, const ConvolutionShape& shape, bool bias);
  void convolve_backward(NodeId node, const ConvolutionShape& shape, bool bias, ValueId x,
                         ValueId w);
  void add_bias_gradient(NodeId node, ValueId dy);

  // fused_builder.cpp
  /// The convolution whose input `last` is may compute it, or take over its backward.
  NodeFusion behind(NodeId last) const { return fusion_.of(structure_.first_reader(last)); }
  /// Takes the sums of the convolution's output.
  struct Sums {
    ValueId sum = kNoValue, square_sum = kNoValue;
  };
  Sums new_sums(NodeId node);
  void convolve_with_statistics(NodeId node, const ConvolutionShape& shape, ValueId x, ValueId w,
                                ValueId y);
  void convolve_normalised(NodeId node, const ConvolutionShape& shape, ValueId w, ValueId y);
  ValueId convolve_block_end(NodeId node, const ConvolutionShape& shape, ValueId w, ValueId y);
  void normalised_backward_filter(NodeId node, const ConvolutionShape& shape, ValueId dy,
                                  ValueId dw);
  void masked_backward_data(NodeId node, const ConvolutionShape& shape, ValueId dy, ValueId w);
  void add_norm_operands(const BatchNormTensors& tensors, const Normalised& norm,
                         std::vector<Operand>& operands);

  // batch_norm.cpp
  Normalised normalise(NodeId node, const BatchNorm& op);
  ValueId batch_norm_sums(NodeId node, ValueId x);
  ValueId activate(NodeId last, bool relu, const Activated& from);
  ValueId add_scale_shift(NodeId last, bool relu, const Activated& from, bool wants_mask);
  void apply_factors(const Normalised& norm, const Factors& factors, ValueId dy, ValueId mask);
  void apply_factors(const Normalised& norm, const Normalised& other, ValueId dy);
  Factors batch_norm_factors(const Normalised& norm, ValueId dy, ValueId mask, ValueId masked);
  void finish_sum(NodeId node, const Normalised& norm, NodeId other);
  void batch_norm_backward(NodeId last, const Normalised& norm, ValueId mask);
  void sum_backward(NodeId last, const Activated& from, NodeId other, ValueId mask);

  // operators.cpp
  void relu_backward(NodeId node, ValueId dy, Target dx);
  void pool(NodeId node, const Window& window, bool count_padding);
  void slice_backward(NodeId node, std::int32_t first, NodeId input);

  void add_loss();
  void reverse(std::function<void()> backward) { backward_.push_back(std::move(backward)); }

  // Values.
  const Node& node_of(NodeId node) const { return graph_.nodes()[static_cast<std::size_t>(node)]; }
  NodeId input_of(NodeId node) const { return node_of(node).inputs.front(); }
  std::int64_t rows_of(NodeId node) const;
  std::size_t elements_of(NodeId node) const;
  ValueId new_activation(NodeId node);
  ValueId new_floats(std::size_t count) { return schedule_.add_value(count * sizeof(float)); }
  ValueId new_mask(NodeId node);
  ValueId output(NodeId node);
  void set_output(NodeId node, ValueId value) { outputs_[slot(node)] = value; }
  /// The image in the type of the precision, with as many channels.
  ValueId image(std::int32_t channels);
  PoolShape pool_shape(NodeId node, const Window& window) const;

  // Gradients.
  bool trains() const noexcept { return phase_ == Phase::train; }
  bool needs_gradient(NodeId node) const { return trains() && needs_gradient_[slot(node)]; }
  ValueId gradient_of(NodeId node) const { return gradient_values_[slot(node)]; }
  Target target(NodeId node);
  /// `value` becomes a part of the node's gradient. With `keep` its memory stays as it is,
  /// otherwise it may become the gradient's own.
  void give(NodeId node, ValueId value, bool keep);
  void copy_or_add(NodeId node, ValueId to, ValueId value, bool add);

  // Parameters.
  ValueId parameter(NodeId node, Role role, Home home);
  ValueId float_parameter(NodeId node, Role role) { return parameter(node, role, Home::weights); }
  ValueId float_gradient(NodeId node, Role role) { return parameter(node, role, Home::gradients); }
  void completes(NodeId node, Role role);
  ValueId running(NodeId node, Role role);

  bool has_gradient(NodeId node) const { return gradient_values_[slot(node)] != kNoValue; }

  static std::size_t slot(NodeId node) { return static_cast<std::size_t>(node + 1); }
  NodeId last_of(NodeId node) const { return structure_.last_of(node); }
  bool fuses_relu(NodeId node) const { return structure_.fuses_relu(node); }

  const Graph& graph_;
  const ExecutableSpec& spec_;
  const Phase phase_;
  const Layouts& layouts_;
  const FusionPlan& fusion_;
  const Structure structure_;
  Schedule& schedule_;
  const DType type_;
  const bool short_;

  ValueId scalars_ = kNoValue;
  std::vector<ValueId> outputs_;                     // by slot; of the ReLU where one is fused
  std::vector<bool> needs_gradient_;                 // by slot
  std::vector<ValueId> gradient_values_;             // by slot
  std::vector<std::optional<Normalised>> waiting_;   // by slot: left to the addition that reads it
  std::vector<std::optional<Activated>> activated_;  // by slot of the ReLU
  std::vector<ValueId> sums_;                        // by slot of the convolution that took them
  std::vector<std::optional<Factors>> factors_;      // by slot: those that are there already
  std::vector<std::function<void()>> backward_;
};

}  // namespace penstock::gpu
