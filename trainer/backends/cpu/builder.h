// SPDX-License-Identifier: Apache-2.0
// Builds the schedule of one phase from a graph; compiler/graph_builder.h says how.
//
// oneDNN chooses the layouts: convolutions request `any`, other operators keep the layout of their
// input, and a value in another layout than requested is reordered.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/backend.h"
#include "trainer/backends/compiler/graph_builder.h"
#include "trainer/backends/compiler/parameter_arena.h"
#include "trainer/backends/cpu/batch_norm.h"
#include "trainer/backends/cpu/onednn.h"
#include "trainer/backends/cpu/schedule.h"

namespace penstock::cpu {

/// The layouts of one parameter: in the arena, where backward writes gradients, and the plain one.
struct ParameterLayout : compiler::ArenaRange {
  dnnl::memory::desc arena, plain;
};
struct Layouts : compiler::ArenaLayouts<ParameterLayout> {
  explicit Layouts(const Graph& graph);
  bool fixed = false;  ///< set by the first phase that is built, which chooses the layouts
};

/// The options of the cpu backend, and facts about the machine.
struct CpuOptions {
  bool winograd = true;           ///< for f32 convolutions, if oneDNN finds it faster
  bool channels_last = false;     ///< else oneDNN chooses the layouts of convolutions
  std::size_t memory_budget = 0;  ///< bytes, for all executables of the process
};

class Builder : compiler::GraphBuilder {
 public:
  /// Borrows all arguments. Throws Unavailable if oneDNN lacks an operator in the precision.
  Builder(const Graph& graph, const ExecutableSpec& spec, const dnnl::engine& engine, Phase phase,
          const CpuOptions& options, Layouts& layouts, Schedule& schedule);
  void build();

 private:
  using Desc = onednn::Desc;

  // One overload per operator: adds its forward operations, sets output(node) and registers
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

  // Convolutions; see convolution.cpp.
  struct Convolution;
  /// A pass backward. `add` adds it to the schedule for a gradient of the output in the layout
  /// `gradient_out`, and returns the input's gradient, or kNoValue.
  struct Pass {
    Desc gradient_out;
    std::function<ValueId(ValueId gradient_out)> add;
  };
  dnnl::convolution_forward::primitive_desc describe_forward(const Convolution& conv) const;
  dnnl::convolution_backward_data::primitive_desc describe_input_gradient(
      const Convolution& conv) const;
  void differentiate(const Convolution& conv, bool by_pixels);
  Pass weight_gradient(const Convolution& conv);
  Pass weight_gradient_in_tiles(const Convolution& conv);
  Pass input_gradient(const Convolution& conv);
  Pass input_gradient_by_pixels(const Convolution& conv);
  bool is_product_of_matrices(const Convolution& conv) const;
  void take_pixels(Convolution& conv);
  /// Copies the pixels that a stride visits; `back`: spreads them over the whole image again.
  ValueId strided(const Convolution& conv, ValueId value, const Desc& target, bool back);

  void normalise_backward(NodeId node, const BatchNorm& op,
                          const dnnl::batch_normalization_forward::primitive_desc& forward,
                          ValueId source, ValueId mean, ValueId variance, ValueId workspace);
  std::int32_t channels_together(NodeId node, const Desc& layout) const;
  BatchNormShape batch_norm_shape(NodeId node, const Desc& layout) const;
  void normalise_by_rows(NodeId node, const BatchNorm& op);
  /// Adds the forward operations of a batch norm by our own kernels; returns its output.
  ValueId add_normalised(NodeId node, const BatchNorm& op, ValueId mean, ValueId variance,
                         ValueId residual, bool relu);
  void update_running_statistics(NodeId node, const BatchNorm& op, ValueId mean, ValueId variance);
  /// If a batch norm waits for this addition, adds both as one operation and returns its output;
  /// else returns kNoValue.
  ValueId add_into_batch_norm(NodeId node);
  void pool(NodeId node, dnnl::algorithm algorithm, const Window& window);
  void add_loss();
  /// As GraphBuilder's, if the node that is being visited has a gradient. The operations are named
  /// after it.
  void reverse(std::function<void()> backward);
  /// "conv2d forward: conv1".
  std::string name_of(NodeId node, std::string_view pass) const;

  // Values.
  Desc activation(NodeId node, dnnl::memory::format_tag tag) const;
  /// What a convolution requests for its input or output.
  Desc requested(NodeId node) const;
  ValueId output(NodeId node);
  ValueId image(const Desc& target);
  ValueId as(ValueId value, const Desc& target);
  /// Reorders from another view of the value's memory.
  ValueId view_as(ValueId value, const Desc& view, const Desc& target);
  ValueId input_as(NodeId node, const Desc& target);
  std::size_t elements(ValueId value) const;

  // Gradients.
  void contribute(NodeId node, ValueId gradient);
  /// The sum of the contributions of all readers of `node`; zero where `mask` is not positive.
  ValueId gradient_of(NodeId node, const Desc& target, ValueId mask = kNoValue);

  // Parameters.
  std::size_t parameter(NodeId node, Role role) const { return layouts_.index_of(node, role); }
  void set_layout(std::size_t parameter, const Desc& desc);
  ValueId weight(std::size_t parameter);
  ValueId gradient(std::size_t parameter);
  ValueId running(NodeId node, Role role);
  ValueId weight_as(std::size_t parameter, const Desc& target);
  void place_parameters();

  dnnl::prop_kind forward_kind() const noexcept {
    return trains() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  }
  dnnl::primitive_attr attributes(bool relu) const;
  /// Leaves out arguments without a value.
  void run(const dnnl::primitive_desc_base& desc, std::vector<Schedule::Argument> arguments);

  NodeId node_ = 0;  ///< the node that is being visited
  const dnnl::engine& engine_;
  /// oneDNN's `auto` chooses between direct and Winograd convolution.
  const dnnl::algorithm convolution_;
  const bool channels_last_;
  Layouts& layouts_;
  Schedule& schedule_;
  const dnnl::memory::data_type type_;
  const DType dtype_;

  compiler::PerNode<std::vector<ValueId>> contributions_;
  /// Batch norms that wait for the addition behind them. Called with the residual (or kNoValue) and
  /// with whether a ReLU follows; returns the output.
  compiler::PerNode<std::function<ValueId(ValueId residual, bool relu)>> waiting_;
  std::vector<ValueId> weights_, gradients_;  // by parameter
};

}  // namespace penstock::cpu
