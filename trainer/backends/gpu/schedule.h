// SPDX-License-Identifier: Apache-2.0
// A step of one phase as a list of kernels and DNN graphs over values. It is built once, without a
// device. Every run then enqueues the list on a stream.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "trainer/backends/compiler/step_plan.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

using compiler::Home;
using compiler::Homes;
using compiler::kNoValue;
using compiler::ValueId;

class Schedule;

/// The addresses of values in one run. kNoValue is null.
class Addresses {
 public:
  std::byte* operator()(ValueId id) const;
  template <typename T>
  T* as(ValueId id) const {
    return reinterpret_cast<T*>((*this)(id));
  }

 private:
  friend class Schedule;
  Addresses(const Schedule& schedule, const Homes& homes, std::vector<ValueId>* requested)
      : schedule_(schedule), homes_(homes), requested_(requested) {}
  const Schedule& schedule_;
  const Homes& homes_;
  std::vector<ValueId>* requested_;
};

class Schedule : public compiler::StepPlan {
 public:
  /// Fills in a call's pointers. It is called once when the operation is added, to learn which
  /// values the call touches, and once in each run.
  using MakeCall = std::function<KernelCall(const Addresses&)>;

  struct DnnCall {
    DnnGraph graph;
    std::vector<ValueId> tensors;  ///< by the graph's tensors; kNoValue for virtual ones
    std::shared_ptr<const DnnPlan> plan{};
    ValueId workspace = kNoValue;
  };

  void add(MakeCall make);
  void add(DnnGraph graph, std::vector<ValueId> tensors);
  /// Calls body(DnnCall&) for each DNN call, in order; body may set the plan.
  void for_each_dnn_call(const std::function<void(DnnCall&)>& body);

  /// StepPlan::plan(), after it has given every call with a plan its workspace.
  void plan();

  /// Receives the operations of one run.
  struct Visitor {
    std::function<void(const KernelCall& call)> kernel;
    std::function<void(const DnnCall& call, std::span<std::byte* const> tensors,
                       std::byte* workspace)>
        dnn;
    std::function<void(std::size_t parameter)> completed{};  ///< may be empty
  };
  /// Visits all operations in order.
  void visit(const Homes& homes, const Visitor& visitor) const;
  /// Enqueues all operations.
  void run(Driver& driver, StreamHandle stream, const Homes& homes,
           const std::function<void(std::size_t parameter)>& ready) const;

 private:
  std::vector<std::variant<MakeCall, DnnCall>> calls_;  // by operation
};

}  // namespace penstock::gpu
