// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/schedule.h"

#include <algorithm>
#include <utility>

#include "dataflow/error.h"
#include "trainer/backends/memory_plan.h"

namespace penstock::gpu {

std::byte* Addresses::operator()(ValueId id) const {
  if (id == kNoValue) return nullptr;
  const Value& value = schedule_.value(id);
  if (value.whole != kNoValue) {
    std::byte* const whole = (*this)(value.whole);
    return whole == nullptr ? nullptr : whole + value.offset;
  }
  if (asked_ != nullptr) asked_->push_back(id);
  std::byte* const base = homes_[static_cast<std::size_t>(value.home)];
  return base == nullptr ? nullptr : base + value.offset;
}

ValueId Schedule::add_value(std::size_t bytes, Home home, std::size_t offset) {
  values_.push_back({.bytes = bytes, .home = home, .offset = offset});
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId Schedule::add_part(ValueId whole, std::size_t offset, std::size_t bytes) {
  PENSTOCK_ASSERT(value(whole).whole == kNoValue && offset + bytes <= value(whole).bytes);
  values_.push_back({.bytes = bytes, .offset = offset, .whole = whole});
  return static_cast<ValueId>(values_.size()) - 1;
}

void Schedule::add(MakeCall make) {
  Operation operation{.what = make};
  constexpr Homes kNowhere{};
  make(Addresses(*this, kNowhere, &operation.touches));
  operations_.push_back(std::move(operation));
}

void Schedule::add(DnnGraph graph, std::vector<ValueId> tensors) {
  PENSTOCK_ASSERT(tensors.size() == graph.tensors.size());
  Operation operation;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    PENSTOCK_ASSERT(graph.tensors[i].is_virtual == (tensors[i] == kNoValue));
    if (tensors[i] == kNoValue) continue;
    PENSTOCK_ASSERT(value(tensors[i]).bytes >= graph.tensors[i].bytes());
    const ValueId whole = value(tensors[i]).whole;
    operation.touches.push_back(whole == kNoValue ? tensors[i] : whole);
  }
  operation.what = DnnCall{std::move(graph), std::move(tensors)};
  operations_.push_back(std::move(operation));
}

void Schedule::completes(std::size_t parameter) {
  operations_.back().completes.push_back(parameter);
}

void Schedule::for_each_dnn_call(const std::function<void(DnnCall&)>& body) {
  for (Operation& operation : operations_) {
    if (auto* const call = std::get_if<DnnCall>(&operation.what)) body(*call);
  }
}

void Schedule::plan() {
  for (Operation& operation : operations_) {
    auto* const call = std::get_if<DnnCall>(&operation.what);
    if (call == nullptr || call->plan == nullptr || call->plan->workspace_bytes() == 0) continue;
    call->workspace = add_value(call->plan->workspace_bytes());
    operation.touches.push_back(call->workspace);
  }
  struct Span {
    std::int32_t first = -1, last = -1;
  };
  std::vector<Span> spans(values_.size());
  for (std::size_t index = 0; index < operations_.size(); ++index) {
    for (const ValueId id : operations_[index].touches) {
      Span& span = spans[static_cast<std::size_t>(id)];
      span.last = static_cast<std::int32_t>(index);
      if (span.first < 0) span.first = span.last;
    }
  }
  std::vector<Lifetime> lifetimes;
  std::vector<std::size_t> planned;
  for (std::size_t id = 0; id < values_.size(); ++id) {
    if (values_[id].home != Home::planned || spans[id].first < 0) continue;
    lifetimes.push_back({values_[id].bytes, spans[id].first, spans[id].last});
    planned.push_back(id);
  }
  planned_bytes_ = plan_memory(lifetimes);
  least_bytes_ = peak_of(lifetimes);
  for (std::size_t i = 0; i < planned.size(); ++i) values_[planned[i]].offset = lifetimes[i].offset;
}

void Schedule::visit(const Homes& homes, const Visitor& visitor) const {
  const Addresses at(*this, homes, nullptr);
  std::vector<std::byte*> tensors;
  for (const Operation& operation : operations_) {
    if (const auto* const make = std::get_if<MakeCall>(&operation.what)) {
      visitor.kernel((*make)(at));
    } else {
      const DnnCall& call = std::get<DnnCall>(operation.what);
      tensors.clear();
      for (const ValueId id : call.tensors) tensors.push_back(at(id));
      visitor.dnn(call, tensors, at(call.workspace));
    }
    if (!visitor.completed) continue;
    for (const std::size_t parameter : operation.completes) visitor.completed(parameter);
  }
}

void Schedule::run(Driver& driver, StreamHandle stream, const Homes& homes,
                   const std::function<void(std::size_t)>& ready) const {
  visit(
      homes,
      {.kernel = [&](const KernelCall& call) { driver.launch(stream, call); },
       .dnn = [&](const DnnCall& call, std::span<std::byte* const> tensors,
                  std::byte* workspace) { driver.execute(stream, *call.plan, tensors, workspace); },
       .completed = ready});
}

}  // namespace penstock::gpu
