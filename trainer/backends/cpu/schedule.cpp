// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/cpu/schedule.h"

#include <chrono>

namespace penstock::cpu {

ValueId Schedule::add_value(const dnnl::memory::desc& desc, Home home, std::size_t offset) {
  descs_.push_back(desc);
  return StepPlan::add_value(desc.get_size(), home, offset);
}

void Schedule::add_primitive(const dnnl::primitive& primitive, std::vector<Argument> arguments,
                             const dnnl::memory::desc& scratchpad) {
  if (scratchpad.get_size() > 0) {
    arguments.push_back({DNNL_ARG_SCRATCHPAD, add_value(scratchpad), {}});
  }
  std::vector<ValueId> touches;
  for (const Argument& argument : arguments) touches.push_back(argument.value);
  add_operation(touches);
  calls_.push_back({.name = name_, .primitive = primitive, .arguments = std::move(arguments)});
}

void Schedule::add_kernel(Kernel kernel, std::vector<ValueId> operands) {
  add_operation(operands);
  calls_.push_back({.name = name_, .kernel = std::move(kernel), .operands = std::move(operands)});
}

void Schedule::bind(const Homes& homes) {
  for (Call& call : calls_) {
    call.addresses.clear();
    for (const ValueId operand : call.operands) call.addresses.push_back(address(operand, homes));
    for (const Argument& argument : call.arguments) {
      const bool viewed = argument.desc.get_size() > 0;
      call.bound.insert_or_assign(
          argument.name, dnnl::memory(viewed ? argument.desc : desc(argument.value), engine_,
                                      address(argument.value, homes)));
    }
  }
}

void Schedule::run(const RunState& state, const GradientReady& ready,
                   const OperationRecorder& recorder) {
  OperationLog& log = *recorder.log;
  const bool logs = log.is_open();
  for (std::size_t operation = 0; operation < calls_.size(); ++operation) {
    const Call& call = calls_[operation];
    const Time begin = logs ? std::chrono::steady_clock::now() : Time();
    if (call.kernel) {
      call.kernel(state, call.addresses);
    } else {
      call.primitive.execute(stream_, call.bound);
    }
    if (logs) log.add({&call.name, recorder.device, begin, std::chrono::steady_clock::now()});
    if (!ready) continue;
    for (const std::size_t parameter : completed_by(operation)) ready(parameter);
  }
}

}  // namespace penstock::cpu
