// SPDX-License-Identifier: Apache-2.0
// A step of one phase as a list of operations over values, with the memory of the values. It is
// built once, and every run executes the list.
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

/// The memory that holds a value.
enum class Home : std::uint8_t { planned, weights, gradients, running };

struct Value {
  dnnl::memory::desc desc;
  Home home = Home::planned;
  std::size_t offset = 0;  ///< bytes into its home
};

/// The arguments of one run.
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

  /// For homes whose order is known only after all values exist.
  void set_offset(ValueId id, std::size_t offset) {
    values_[static_cast<std::size_t>(id)].offset = offset;
  }

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

  /// The last added operation may write `output` over `input`, if no later operation reads `input`.
  void may_overwrite(ValueId output, ValueId input);
  /// The last added operation completes this parameter's gradient.
  void completes(std::size_t parameter);

  /// Plans memory. Nothing can be added after it.
  void plan();
  std::size_t planned_bytes() const noexcept { return planned_bytes_; }
  /// Fixes addresses. The schedule uses addresses of the planned home only during runs.
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
