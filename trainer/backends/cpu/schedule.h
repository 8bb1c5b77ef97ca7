// SPDX-License-Identifier: Apache-2.0
// A step of one phase as a list of oneDNN's primitives and kernels over values. It is built once,
// and every run executes the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dataflow/trace_log.h"
#include "trainer/backend.h"
#include "trainer/backends/compiler/step_plan.h"
#include "trainer/backends/cpu/onednn.h"

namespace penstock::cpu {

/// An operation that ran while they were recorded.
struct OperationSpan {
  const std::string* name = nullptr;  ///< lives as long as the schedule
  std::int32_t device = 0;
  Time begin{}, end{};
};
using OperationLog = TraceLog<OperationSpan>;
/// Where the operations of one device go while the log is open.
struct OperationRecorder {
  std::shared_ptr<OperationLog> log = std::make_shared<OperationLog>(0);
  std::int32_t device = 0;
};

using compiler::Home;
using compiler::Homes;
using compiler::kNoValue;
using compiler::ValueId;

/// The arguments of one run.
struct RunState {
  const Batch& batch;
  StepResult& result;
  std::int64_t step = 0;
};

class Schedule : public compiler::StepPlan {
 public:
  explicit Schedule(const dnnl::engine& engine) : engine_(engine), stream_(engine) {}

  /// The name of the operations that are added from now on; returns the one before.
  std::string name(std::string name) { return std::exchange(name_, std::move(name)); }

  ValueId add_value(const dnnl::memory::desc& desc, Home home = Home::planned,
                    std::size_t offset = 0);
  dnnl::memory::desc desc(ValueId id) const { return descs_[static_cast<std::size_t>(id)]; }

  /// One argument of a primitive; `desc` replaces the value's own descriptor, for another view of
  /// it.
  struct Argument {
    int name = 0;  ///< DNNL_ARG_...
    ValueId value = kNoValue;
    dnnl::memory::desc desc{};
  };
  /// `scratchpad` is the scratchpad descriptor of the primitive.
  void add_primitive(const dnnl::primitive& primitive, std::vector<Argument> arguments,
                     const dnnl::memory::desc& scratchpad);

  using Kernel = std::function<void(const RunState&, std::span<std::byte* const>)>;
  /// `kernel` gets the addresses of `operands`, in their order.
  void add_kernel(Kernel kernel, std::vector<ValueId> operands);

  /// Fixes addresses. The schedule uses addresses of the planned home only during runs.
  void bind(const Homes& homes);
  /// Records each operation, if the log is open.
  void run(const RunState& state, const GradientReady& ready, const OperationRecorder& recorder);

 private:
  struct Call {
    std::string name{};
    dnnl::primitive primitive{};
    std::vector<Argument> arguments{};
    std::unordered_map<int, dnnl::memory> bound{};
    // or
    Kernel kernel{};
    std::vector<ValueId> operands{};
    std::vector<std::byte*> addresses{};
  };

  std::string name_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<dnnl::memory::desc> descs_;  // by value
  std::vector<Call> calls_;                // by operation
};

}  // namespace penstock::cpu
