// SPDX-License-Identifier: Apache-2.0
// A step of one phase as a list of operations over values, with the places of the values in memory.
// It is built once, without a device. Every run then enqueues the list on a stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

using ValueId = std::int32_t;
constexpr ValueId kNoValue = -1;

/// The memory that holds a value: the block that the schedule plans, the executable's arenas, or
/// the batch and the result of one run.
enum class Home : std::uint8_t {
  planned,
  weights,
  gradients,
  running,
  short_weights,    ///< of 16 bits: read by convolutions
  short_gradients,  ///< of 16 bits: written by the backward pass of convolutions
  tables,           ///< constants
  scalars,
  pixels,
  labels,
  result
};
/// Base addresses, indexed by Home.
using Homes = std::array<std::byte*, 11>;

struct Value {
  std::size_t bytes = 0;
  Home home = Home::planned;
  std::size_t offset = 0;    ///< bytes into its home, or into `whole`
  ValueId whole = kNoValue;  ///< the value of which this is a part
};

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
  Addresses(const Schedule& schedule, const Homes& homes, std::vector<ValueId>* asked)
      : schedule_(schedule), homes_(homes), asked_(asked) {}
  const Schedule& schedule_;
  const Homes& homes_;
  std::vector<ValueId>* asked_;
};

class Schedule {
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

  ValueId add_value(std::size_t bytes, Home home = Home::planned, std::size_t offset = 0);
  /// Adds a part of `whole`. `whole` must not be a part itself.
  ValueId add_part(ValueId whole, std::size_t offset, std::size_t bytes);
  const Value& value(ValueId id) const { return values_[static_cast<std::size_t>(id)]; }

  void add(MakeCall make);
  void add(DnnGraph graph, std::vector<ValueId> tensors);
  /// The operation added last completes this parameter's gradient.
  void completes(std::size_t parameter);

  std::size_t operation_count() const noexcept { return operations_.size(); }
  /// Calls body(DnnCall&) for each DNN call, in order; body may set the plan.
  void for_each_dnn_call(const std::function<void(DnnCall&)>& body);

  /// Gives every call with a plan its workspace and lays out the planned values. Nothing can be
  /// added afterwards.
  void plan();
  std::size_t planned_bytes() const noexcept { return planned_bytes_; }
  /// The most bytes that are alive at one time: a lower bound for every layout.
  std::size_t least_bytes() const noexcept { return least_bytes_; }

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
  struct Operation {
    std::variant<MakeCall, DnnCall> what;
    std::vector<ValueId> touches{};
    std::vector<std::size_t> completes{};
  };

  std::vector<Value> values_;
  std::vector<Operation> operations_;
  std::size_t planned_bytes_ = 0, least_bytes_ = 0;
};

}  // namespace penstock::gpu
