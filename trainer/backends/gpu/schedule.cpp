// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/schedule.h"

#include <utility>

#include "dataflow/error.h"

namespace penstock::gpu {

std::byte* Addresses::operator()(ValueId id) const {
  if (requested_ != nullptr && id != kNoValue) requested_->push_back(id);
  return schedule_.address(id, homes_);
}

void Schedule::add(MakeCall make) {
  std::vector<ValueId> touches;
  constexpr Homes kNowhere{};
  make(Addresses(*this, kNowhere, &touches));
  add_operation(touches);
  calls_.emplace_back(std::move(make));
}

void Schedule::add(DnnGraph graph, std::vector<ValueId> tensors) {
  PENSTOCK_ASSERT(tensors.size() == graph.tensors.size());
  std::vector<ValueId> touches;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    PENSTOCK_ASSERT(graph.tensors[i].is_virtual == (tensors[i] == kNoValue));
    if (tensors[i] == kNoValue) continue;
    PENSTOCK_ASSERT(value(tensors[i]).bytes >= graph.tensors[i].bytes());
    touches.push_back(tensors[i]);
  }
  add_operation(touches);
  calls_.emplace_back(DnnCall{std::move(graph), std::move(tensors)});
}

void Schedule::for_each_dnn_call(const std::function<void(DnnCall&)>& body) {
  for (auto& call : calls_) {
    if (auto* const dnn = std::get_if<DnnCall>(&call)) body(*dnn);
  }
}

void Schedule::plan() {
  for (std::size_t operation = 0; operation < calls_.size(); ++operation) {
    auto* const call = std::get_if<DnnCall>(&calls_[operation]);
    if (call == nullptr || call->plan == nullptr || call->plan->workspace_bytes() == 0) continue;
    call->workspace = add_value(call->plan->workspace_bytes());
    touch(operation, call->workspace);
  }
  StepPlan::plan();
}

void Schedule::visit(const Homes& homes, const Visitor& visitor) const {
  const Addresses at(*this, homes, nullptr);
  std::vector<std::byte*> tensors;
  for (std::size_t operation = 0; operation < calls_.size(); ++operation) {
    if (const auto* const make = std::get_if<MakeCall>(&calls_[operation])) {
      visitor.kernel((*make)(at));
    } else {
      const DnnCall& call = std::get<DnnCall>(calls_[operation]);
      tensors.clear();
      for (const ValueId id : call.tensors) tensors.push_back(at(id));
      visitor.dnn(call, tensors, at(call.workspace));
    }
    if (!visitor.completed) continue;
    for (const std::size_t parameter : completed_by(operation)) visitor.completed(parameter);
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
