// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/cpu/schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "trainer/backends/memory_plan.h"

namespace penstock::cpu {

ValueId Schedule::add_value(const dnnl::memory::desc& desc, Home home, std::size_t offset) {
  values_.push_back({desc, home, offset});
  return static_cast<ValueId>(values_.size()) - 1;
}

void Schedule::add_primitive(const dnnl::primitive& primitive, std::vector<Argument> arguments,
                             const dnnl::memory::desc& scratchpad) {
  if (scratchpad.get_size() > 0) {
    arguments.push_back({DNNL_ARG_SCRATCHPAD, add_value(scratchpad), {}});
  }
  Operation operation;
  operation.primitive = primitive;
  operation.arguments = std::move(arguments);
  operations_.push_back(std::move(operation));
}

void Schedule::add_kernel(Kernel kernel, std::vector<ValueId> operands) {
  Operation operation;
  operation.kernel = std::move(kernel);
  for (const ValueId operand : operands) operation.arguments.push_back({0, operand, {}});
  operations_.push_back(std::move(operation));
}

void Schedule::may_overwrite(ValueId output, ValueId input) {
  operations_.back().overwriting = output;
  operations_.back().overwritten = input;
}

void Schedule::completes(std::size_t parameter) {
  operations_.back().completes.push_back(parameter);
}

void Schedule::plan() {
  std::vector<Lifetime> lifetimes(values_.size());
  for (std::size_t id = 0; id < values_.size(); ++id) {
    lifetimes[id] = {values_[id].desc.get_size(), -1, -1, 0};
  }
  const auto lifetime = [&](ValueId id) -> Lifetime& {
    return lifetimes[static_cast<std::size_t>(id)];
  };
  for (std::size_t index = 0; index < operations_.size(); ++index) {
    for (const Argument& argument : operations_[index].arguments) {
      Lifetime& used = lifetime(argument.value);
      used.last = static_cast<std::int32_t>(index);
      if (used.first < 0) used.first = used.last;
    }
  }
  // A value that overwrites another shares its storage, which then lives for both lifetimes.
  std::vector<ValueId> storage(values_.size());
  std::iota(storage.begin(), storage.end(), 0);
  for (std::size_t index = 0; index < operations_.size(); ++index) {
    const auto [output, input] =
        std::pair(operations_[index].overwriting, operations_[index].overwritten);
    if (output == kNoValue || value(input).home != Home::planned ||
        value(output).home != Home::planned) {
      continue;
    }
    Lifetime& kept = lifetime(storage[static_cast<std::size_t>(input)]);
    Lifetime& joined = lifetime(output);
    if (kept.last != static_cast<std::int32_t>(index) || kept.bytes != joined.bytes ||
        joined.first != kept.last) {
      continue;
    }
    kept.last = joined.last;
    storage[static_cast<std::size_t>(output)] = storage[static_cast<std::size_t>(input)];
  }
  std::vector<Lifetime> planned;
  std::vector<std::size_t> place(values_.size());
  for (std::size_t id = 0; id < values_.size(); ++id) {
    const bool own = storage[id] == static_cast<ValueId>(id);
    if (values_[id].home != Home::planned || !own || lifetimes[id].first < 0) continue;
    place[id] = planned.size();
    planned.push_back(lifetimes[id]);
  }
  planned_bytes_ = plan_memory(planned);
  for (std::size_t id = 0; id < values_.size(); ++id) {
    const auto owner = static_cast<std::size_t>(storage[id]);
    if (values_[id].home != Home::planned || lifetimes[owner].first < 0) continue;
    values_[id].offset = planned[place[owner]].offset;
  }
}

void Schedule::bind(const Homes& homes) {
  const auto address = [&](ValueId id) {
    const Value& bound = value(id);
    return homes[static_cast<std::size_t>(bound.home)] + bound.offset;
  };
  for (Operation& operation : operations_) {
    operation.addresses.clear();
    operation.bound.clear();
    for (const Argument& argument : operation.arguments) {
      std::byte* const data = address(argument.value);
      if (operation.kernel) {
        operation.addresses.push_back(data);
      } else {
        const bool viewed = argument.desc.get_size() > 0;
        operation.bound.insert_or_assign(
            argument.name,
            dnnl::memory(viewed ? argument.desc : value(argument.value).desc, engine_, data));
      }
    }
  }
}

void Schedule::run(const RunState& state, const GradientReady& ready) {
  for (const Operation& operation : operations_) {
    if (operation.kernel) {
      operation.kernel(state, operation.addresses);
    } else {
      operation.primitive.execute(stream_, operation.bound);
    }
    if (!ready) continue;
    for (const std::size_t parameter : operation.completes) ready(parameter);
  }
}

}  // namespace penstock::cpu
