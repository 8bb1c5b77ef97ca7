// SPDX-License-Identifier: Apache-2.0
// Builds the schedule of one phase from a graph. It visits the operators once, in order. Each adds
// its forward operations and registers a function that adds its backward operations; these
// functions run in reverse order after the loss.
//
// oneDNN chooses the layouts: convolutions request `any`, other operators keep the layout of their
// input, and a value in another layout than wanted is reordered. A ReLU is fused into the previous
// operator if it is that operator's only reader.
#pragma once

#include <cstdint>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "trainer/backend.h"
#include "trainer/backends/cpu/schedule.h"

namespace penstock::cpu {

/// The layouts of one parameter: in the arena, where backward writes gradients, and the plain one.
struct ParameterLayout {
  ParameterSpec spec;
  dnnl::memory::desc arena, plain;
  std::size_t offset = 0;  ///< bytes into the arenas
};

/// The parameters in the order in which backward finishes them.
struct Layouts {
  std::vector<ParameterLayout> parameters;
  std::vector<ParameterLayout> buffers;
  std::size_t parameter_bytes = 0, buffer_bytes = 0;
  bool fixed = false;  ///< set by the first phase that is built

  std::size_t index_of(NodeId node, Role role) const;
  /// The layout of a parameter or a buffer.
  const ParameterLayout& of(const ParameterSpec& spec) const;
};
Layouts make_layouts(const Graph& graph);

/// The options of the cpu backend, and facts about the machine.
struct CpuOptions {
  bool winograd = true;           ///< for f32 convolutions, if oneDNN finds it faster
  std::size_t memory_budget = 0;  ///< bytes, for all executables of the process
};

class Builder {
 public:
  /// Borrows all arguments. Throws Unavailable if oneDNN lacks an operator in the wanted precision.
  Builder(const Graph& graph, const ExecutableSpec& spec, const dnnl::engine& engine, Phase phase,
          const CpuOptions& options, Layouts& layouts, Schedule& schedule);
  void build();

 private:
  using Desc = dnnl::memory::desc;

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

  void convolve_backward(NodeId node, const Conv2d& op,
                         const dnnl::convolution_forward::primitive_desc& forward, ValueId source);
  void normalise_backward(NodeId node, const BatchNorm& op,
                          const dnnl::batch_normalization_forward::primitive_desc& forward,
                          ValueId source, ValueId mean, ValueId variance, ValueId workspace);
  void normalise_blocked(NodeId node, const BatchNorm& op);
  /// Adds the forward operations of a batch norm in blocks of channels; returns its output.
  ValueId add_normalised(NodeId node, const BatchNorm& op, ValueId mean, ValueId variance,
                         ValueId residual, bool relu);
  void update_running_statistics(NodeId node, const BatchNorm& op, ValueId mean, ValueId variance);
  /// If a batch norm waits for this addition, adds both as one operation and returns its output;
  /// else returns kNoValue.
  ValueId add_into_batch_norm(NodeId node);
  void pool(NodeId node, dnnl::algorithm algorithm, const Window& window);
  void add_loss();
  void reverse(std::function<void()> backward) { backward_.push_back(std::move(backward)); }

  // Values.
  Desc activation(NodeId node, dnnl::memory::format_tag tag) const;
  ValueId output(NodeId node);
  void set_output(NodeId node, ValueId value) { outputs_[slot(node)] = value; }
  ValueId image(const Desc& wanted);
  ValueId as(ValueId value, const Desc& wanted);
  ValueId input_as(NodeId node, const Desc& wanted);
  std::size_t elements(ValueId value) const;

  // Gradients.
  bool needs_gradient(NodeId node) const { return trains() && needs_gradient_[slot(node)]; }
  bool has_gradient(NodeId node) const { return !contributions_[slot(node)].empty(); }
  void contribute(NodeId node, ValueId gradient);
  /// The sum of the contributions of all readers of `node`; zero where `mask` is not positive.
  ValueId gradient_of(NodeId node, const Desc& wanted, ValueId mask = kNoValue);

  // Parameters.
  std::size_t parameter(NodeId node, Role role) const { return layouts_.index_of(node, role); }
  void set_layout(std::size_t parameter, const Desc& desc);
  ValueId weight(std::size_t parameter);
  ValueId gradient(std::size_t parameter);
  ValueId running(NodeId node, Role role);
  ValueId weight_as(std::size_t parameter, const Desc& wanted);
  void place_parameters();

  bool trains() const noexcept { return phase_ == Phase::train; }
  dnnl::prop_kind forward_kind() const noexcept {
    return trains() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  }
  static std::size_t slot(NodeId node) { return static_cast<std::size_t>(node + 1); }
  /// The ReLU that is fused into `node`, or `node` itself.
  NodeId last_of(NodeId node) const {
    return relu_of_[slot(node)] == Graph::kInput ? node : relu_of_[slot(node)];
  }
  bool fuses_relu(NodeId node) const { return last_of(node) != node; }
  dnnl::primitive_attr attributes(bool relu) const;
  void run(const dnnl::primitive_desc_base& desc, std::vector<Schedule::Argument> arguments);
  void find_fusions();

  const Graph& graph_;
  const ExecutableSpec& spec_;
  const dnnl::engine& engine_;
  const Phase phase_;
  /// oneDNN's `auto` chooses between direct and Winograd convolution.
  const dnnl::algorithm convolution_;
  Layouts& layouts_;
  Schedule& schedule_;
  const dnnl::memory::data_type type_;
  const DType dtype_;

  std::vector<ValueId> outputs_;                     // by slot; output of the ReLU if one is fused
  std::vector<int> readers_;                         // by slot
  std::vector<NodeId> relu_of_;                      // by slot; kInput: none
  std::vector<bool> is_fused_;                       // by slot: computed by the node before
  std::vector<bool> needs_gradient_;                 // by slot
  std::vector<std::vector<ValueId>> contributions_;  // by slot
  /// By slot: a batch norm whose only reader is an addition waits for it. Called with the residual
  /// (or kNoValue) and with whether a ReLU follows; returns the output.
  std::vector<std::function<ValueId(ValueId residual, bool relu)>> waiting_;
  std::vector<std::function<void()>> backward_;
  std::vector<ValueId> weights_, gradients_;  // by parameter
};

}  // namespace penstock::cpu
