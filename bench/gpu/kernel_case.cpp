// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/kernel_case.h"

#include <cstring>
#include <utility>

#include "tests/support/gpu/host_launch.h"
#include "trainer/backend.h"

namespace penstock::gpu {
namespace {

/// Both sides compute the same formulas, but compilers differ: fused multiply-add, other square
/// roots and exponentials. A result near the middle of two rounded values may be rounded to the
/// other one.
double tolerance_of(DType type) {
  if (type == DType::f16) return 5e-4;
  return type == DType::bf16 ? 4e-3 : 1e-5;
}

}  // namespace

KernelCase filled(KernelCase of) {
  for (std::size_t i = 0; i < of.operands.size(); ++i) {
    Random random(of.seed, std::hash<std::string>{}(of.name), i);
    of.operands[i].before = of.operands[i].draw(random);
  }
  return of;
}

std::vector<Bytes> run_on_host(const KernelCase& of) {
  std::vector<Bytes> memory;
  std::vector<std::byte*> addresses;
  for (const KernelOperand& operand : of.operands) memory.push_back(operand.before);
  for (Bytes& bytes : memory) addresses.push_back(bytes.data());
  launch_on_host(of.call(OperandAddresses(addresses)));
  return memory;
}

CaseBuilder::CaseBuilder(std::string name, DType type, std::uint64_t seed)
    : case_{.name = std::move(name), .tolerance = tolerance_of(type), .seed = seed} {}

OperandId CaseBuilder::add(KernelOperand operand) {
  case_.operands.push_back(std::move(operand));
  return static_cast<OperandId>(case_.operands.size()) - 1;
}

OperandId CaseBuilder::input(DType type, std::size_t count, double low, double high) {
  return add(
      {.draw = [=](Random& random) { return random_elements(type, count, random, low, high); },
       .content = content_of(type)});
}

OperandId CaseBuilder::made(std::function<Bytes(Random&)> draw) {
  return add({.draw = std::move(draw)});
}

OperandId CaseBuilder::random_bits(std::size_t bytes) {
  return made([=](Random& random) {
    Bytes drawn(bytes);
    random.fill(drawn);
    return drawn;
  });
}

OperandId CaseBuilder::integers(std::size_t count, std::uint32_t below) {
  return made([=](Random& random) {
    std::vector<std::int32_t> values(count);
    for (std::int32_t& value : values) value = static_cast<std::int32_t>(random.below(below));
    const auto bytes = std::as_bytes(std::span(values));
    return Bytes(bytes.begin(), bytes.end());
  });
}

OperandId CaseBuilder::output(DType type, std::size_t count) {
  return add({.draw = [=](Random&) { return poison(count * size_of(type)); },
              .content = content_of(type),
              .written = true});
}

OperandId CaseBuilder::output_bits(std::size_t bytes) {
  return add({.draw = [=](Random&) { return poison(bytes); }, .written = true});
}

OperandId CaseBuilder::output_result() {
  return add({.draw =
                  [](Random&) {
                    Bytes bytes(sizeof(StepResult));
                    const StepResult zero;
                    std::memcpy(bytes.data(), &zero, sizeof zero);
                    return bytes;
                  },
              .content = Content::result,
              .written = true,
              .kind = MemoryKind::pinned});
}

OperandId CaseBuilder::both(DType type, std::size_t count, double low, double high) {
  const OperandId id = input(type, count, low, high);
  case_.operands.back().written = true;
  return id;
}

OperandId CaseBuilder::scalars(std::int32_t valid) {
  const StepScalars scalars{
      .step = 7,
      .valid = valid,
      .loss_scale = 64,
      .hyper = {.learning_rate = 0.1F, .weight_decay = 1e-3F, .gradient_clip = 0, .step = 7}};
  return constant(std::span<const StepScalars>(&scalars, 1));
}

KernelCase CaseBuilder::build(std::function<KernelCall(const OperandAddresses&)> call) {
  case_.call = std::move(call);
  return std::move(case_);
}

std::vector<KernelCase> kernel_cases(std::uint64_t seed) {
  std::vector<KernelCase> cases;
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    add_elementwise_cases(cases, type, seed);
    add_batch_norm_cases(cases, type, seed);
    add_pool_cases(cases, type, seed);
    add_step_cases(cases, type, seed);
  }
  add_update_cases(cases, seed);
  return cases;
}

}  // namespace penstock::gpu
