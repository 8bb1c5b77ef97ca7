// SPDX-License-Identifier: Apache-2.0
// A step of one phase as a list of operations over values, and where the values lie. Built once;
// then every run walks the list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/backend.h"

namespace penstock::cpu {

using ValueId = std::int32_t;
constexpr ValueId kNoValue = -1;

/// Where a value's memory is.
enum class Home : std::uint8_t { planned, weights, gradients, running };

struct Value {
  dnnl::memory::desc desc;
  Home home = Home::planned;
  std::size_t offset = 0;  ///< bytes into its home
};

/// What one run is about.
struct RunState {
  const Batch& batch;
  StepResult& result;
  std::int64_t step = 0;
};

/// Base addresses of the homes, indexed by Home.
using Homes = std::array<std::byte*, 4>;

class Schedule {
 public:
  explicit Schedule(const dnnl::engine& engine) : engine_(engine), stream_(engine) {}
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  ValueId add_value(const dnnl::memory::desc& desc, Home home = Home::planned,
                    std::size_t offset = 0);
  const Value& value(ValueId id) const { return values_[static_cast<std::size_t>(id)]; }

  /// For homes whose order is known only after all values are there.
  void set_offset(ValueId id, std::size_t offset) {
    values_[static_cast<std::size_t>(id)].offset = offset;
  }

  /// One argument of a primitive; `desc` overrides the value's own, for another view of it.
  struct Argument {
    int name = 0;  ///< DNNL_ARG_...
    ValueId value = kNoValue;
    dnnl::memory::desc desc{};
  };
  /// `scratchpad` is what the primitive's descriptor asks for.
  void add_primitive(const dnnl::primitive& primitive, std::vector<Argument> arguments,
                     const dnnl::memory::desc& scratchpad);

  using Kernel = std::function<void(const RunState&, std::span<std::byte* const>)>;
  /// `kernel` gets the addresses of `operands`, in their order.
  void add_kernel(Kernel kernel, std::vector<ValueId> operands);

  /// The operation added last may write `output` over `input`, if nobody reads that later.
  void may_overwrite(ValueId output, ValueId input);
  /// The operation added last completes this parameter's gradient.
  void completes(std::size_t parameter);

  /// Plans memory. Afterwards nothing can be added.
  void plan();
  std::size_t planned_bytes() const noexcept { return planned_bytes_; }
  /// Fixes addresses. The schedule keeps those of the planned home only for runs.
  void bind(const Homes& homes);
  void run(const RunState& state, const GradientReady& ready);

 private:
  struct Operation {
    dnnl::primitive primitive;  // or
    Kernel kernel;
    std::vector<Argument> arguments;  // of kernels: operands
    ValueId overwriting = kNoValue, overwritten = kNoValue;
    std::vector<std::size_t> completes;
    std::unordered_map<int, dnnl::memory> bound;
    std::vector<std::byte*> addresses;
  };

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Value> values_;
  std::vector<Operation> operations_;
  std::size_t planned_bytes_ = 0;
};

}  // namespace penstock::cpu
