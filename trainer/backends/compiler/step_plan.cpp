// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/compiler/step_plan.h"

#include <numeric>

#include "dataflow/error.h"
#include "trainer/backends/compiler/memory_plan.h"

namespace penstock::compiler {

ValueId StepPlan::add_value(std::size_t bytes, Home home, std::size_t offset) {
  values_.push_back({.bytes = bytes, .home = home, .offset = offset});
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId StepPlan::add_part(ValueId whole, std::size_t offset, std::size_t bytes) {
  PENSTOCK_ASSERT(value(whole).whole == kNoValue && offset + bytes <= value(whole).bytes);
  values_.push_back({.bytes = bytes, .offset = offset, .whole = whole});
  return static_cast<ValueId>(values_.size()) - 1;
}

std::byte* StepPlan::address(ValueId id, const Homes& homes) const {
  if (id == kNoValue) return nullptr;
  const Value& of = value(id);
  std::byte* const base =
      of.whole == kNoValue ? homes[static_cast<std::size_t>(of.home)] : address(of.whole, homes);
  return base == nullptr ? nullptr : base + of.offset;
}

void StepPlan::add_operation(const std::vector<ValueId>& touches) {
  operations_.emplace_back();
  for (const ValueId id : touches) touch(operations_.size() - 1, id);
}

void StepPlan::touch(std::size_t operation, ValueId id) {
  const ValueId whole = value(id).whole;
  operations_[operation].touches.push_back(whole == kNoValue ? id : whole);
}

void StepPlan::may_overwrite(ValueId output, ValueId input) {
  operations_.back().overwriting = output;
  operations_.back().overwritten = input;
}

void StepPlan::plan() {
  std::vector<Lifetime> lifetimes;
  for (const Value& value : values_) lifetimes.push_back({value.bytes, -1, -1, 0});
  const auto lifetime = [&](ValueId id) -> Lifetime& {
    return lifetimes[static_cast<std::size_t>(id)];
  };
  for (std::size_t index = 0; index < operations_.size(); ++index) {
    for (const ValueId id : operations_[index].touches) {
      Lifetime& used = lifetime(id);
      used.last = static_cast<std::int32_t>(index);
      if (used.first < 0) used.first = used.last;
    }
  }
  // A value that overwrites another shares its storage, which then lives for both lifetimes.
  std::vector<ValueId> storage(values_.size());
  std::iota(storage.begin(), storage.end(), 0);
  for (std::size_t index = 0; index < operations_.size(); ++index) {
    const ValueId output = operations_[index].overwriting, input = operations_[index].overwritten;
    if (output == kNoValue || value(input).home != Home::planned ||
        value(output).home != Home::planned) {
      continue;
    }
    Lifetime& kept = lifetime(storage[static_cast<std::size_t>(input)]);
    const Lifetime& joined = lifetime(output);
    if (kept.last != static_cast<std::int32_t>(index) || kept.bytes != joined.bytes ||
        joined.first != kept.last) {
      continue;
    }
    kept.last = joined.last;
    storage[static_cast<std::size_t>(output)] = storage[static_cast<std::size_t>(input)];
  }
  std::vector<Lifetime> planned;
  std::vector<std::size_t> place(values_.size());
  const auto is_planned = [&](std::size_t id) {
    return values_[id].home == Home::planned && lifetime(storage[id]).first >= 0;
  };
  for (std::size_t id = 0; id < values_.size(); ++id) {
    if (!is_planned(id) || storage[id] != static_cast<ValueId>(id)) continue;
    place[id] = planned.size();
    planned.push_back(lifetimes[id]);
  }
  planned_bytes_ = plan_memory(planned);
  least_bytes_ = peak_of(planned);
  for (std::size_t id = 0; id < values_.size(); ++id) {
    if (!is_planned(id)) continue;
    values_[id].offset = planned[place[static_cast<std::size_t>(storage[id])]].offset;
  }
}

}  // namespace penstock::compiler
