// SPDX-License-Identifier: Apache-2.0
// The step of one phase as operations over values: the memory of each value, and the gradients that
// each operation completes. It is built once, without a device. A backend's schedule derives from
// it and keeps, for each operation, the call that computes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::compiler {

using ValueId = std::int32_t;
constexpr ValueId kNoValue = -1;

/// The memory that holds a value: the block that the plan lays out, the executable's arenas, or the
/// batch and the result of one run. A backend uses those that it needs.
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

class StepPlan {
 public:
  StepPlan(const StepPlan&) = delete;
  StepPlan& operator=(const StepPlan&) = delete;

  ValueId add_value(std::size_t bytes, Home home = Home::planned, std::size_t offset = 0);
  /// Adds a part of `whole`. `whole` must not be a part itself.
  ValueId add_part(ValueId whole, std::size_t offset, std::size_t bytes);
  const Value& value(ValueId id) const { return values_[static_cast<std::size_t>(id)]; }
  /// For homes whose order is known only after all values exist.
  void set_offset(ValueId id, std::size_t offset) {
    values_[static_cast<std::size_t>(id)].offset = offset;
  }
  /// Null for kNoValue and for values of a home without memory.
  std::byte* address(ValueId id, const Homes& homes) const;

  /// The operation added last may write `output` over `input`, if no later operation reads `input`.
  void may_overwrite(ValueId output, ValueId input);
  /// The operation added last completes this parameter's gradient.
  void completes(std::size_t parameter) { operations_.back().completes.push_back(parameter); }
  std::size_t operation_count() const noexcept { return operations_.size(); }

  /// Lays out the planned values: those that are never alive together may share memory. Nothing can
  /// be added afterwards.
  void plan();
  std::size_t planned_bytes() const noexcept { return planned_bytes_; }
  /// The most bytes that are alive at one time: a lower bound for every layout.
  std::size_t least_bytes() const noexcept { return least_bytes_; }

 protected:
  StepPlan() = default;
  ~StepPlan() = default;

  void add_operation(const std::vector<ValueId>& touches);
  /// The operation also touches `value`.
  void touch(std::size_t operation, ValueId value);
  const std::vector<std::size_t>& completed_by(std::size_t operation) const {
    return operations_[operation].completes;
  }

 private:
  struct Operation {
    std::vector<ValueId> touches{};  ///< whole values
    std::vector<std::size_t> completes{};
    ValueId overwriting = kNoValue, overwritten = kNoValue;
  };

  std::vector<Value> values_;
  std::vector<Operation> operations_;
  std::size_t planned_bytes_ = 0, least_bytes_ = 0;
};

}  // namespace penstock::compiler
