// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/kernel_case.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <variant>

#include "dataflow/error.h"
#include "tests/support/gpu/host_launch.h"

namespace penstock::gpu {
namespace {

/// Both sides compute the same formulas, but compilers differ: fused multiply-add, other square
/// roots and exponentials. A result near the middle of two rounded values may be rounded to the
/// other one.
double tolerance_of(DType type) {
  if (type == DType::f16) return 5e-4;
  return type == DType::bf16 ? 4e-3 : 1e-5;
}

/// Half a unit in the last place, for 24, 11 and 8 significant bits.
double half_unit(DType type) {
  return type == DType::f32 ? 0x1p-24 : type == DType::f16 ? 0x1p-11 : 0x1p-8;
}
/// Half the distance between the smallest numbers.
double half_smallest(DType type) {
  return type == DType::f32 ? 0x1p-150 : type == DType::f16 ? 0x1p-25 : 0x1p-134;
}

/// The operand and the place in it to which a pointer points.
struct Place {
  std::size_t operand, offset;
};
bool find(const std::vector<KernelCase::Operand>& operands, std::uintptr_t address, Place& place) {
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const auto begin = reinterpret_cast<std::uintptr_t>(operands[k].before.data());
    if (address < begin || address > begin + operands[k].before.size()) continue;
    place = {k, address - begin};
    return true;
  }
  return false;
}

class HostResults final : public Results {
 public:
  HostResults(const KernelCase& of, const std::vector<Bytes>& after) : of_(of), after_(after) {}

  double after(const void* data, DType type, std::size_t i) const override {
    return element_of(memory_after(data), content_of(type), i);
  }
  const std::byte* memory_after(const void* data) const override {
    const Place place = place_of(data);
    return after_[place.operand].data() + place.offset;
  }
  void expect(const void* data, std::size_t i, double found, double expected,
              double tolerance) override {
    const bool right = found == expected || std::abs(found - expected) <= tolerance ||
                       (std::isnan(found) && std::isnan(expected));
    if (right || !failure.empty()) return;
    failure = fmt::format("element {} of operand {} is {:.9g}, not {:.9g} +- {:.3g}", i,
                          place_of(data).operand, found, expected, tolerance);
  }

  std::string failure;

 private:
  Place place_of(const void* data) const {
    Place place{};
    PENSTOCK_ASSERT(find(of_.operands(), reinterpret_cast<std::uintptr_t>(data), place));
    return place;
  }

  const KernelCase& of_;
  const std::vector<Bytes>& after_;
};

}  // namespace

void Results::rounded(const void* data, DType type, std::size_t i, double expected, double size,
                      double roundings) {
  const double arithmetic = roundings * 0x1p-24 * size;
  expect(data, i, after(data, type, i), expected,
         arithmetic + half_unit(type) * (std::abs(expected) + arithmetic) + half_smallest(type));
}

KernelCase::KernelCase(DType type, const Random& random)
    : tolerance(tolerance_of(type)), random_(random) {}

/// An empty operand has an address, too: a null pointer would mean that there is none.
std::byte* KernelCase::add(Operand operand) {
  if (operand.before.empty()) operand.before.resize(1);
  operands_.push_back(std::move(operand));
  return operands_.back().before.data();
}

void* KernelCase::input(DType type, std::size_t count, double low, double high) {
  return add(
      {.before = random_elements(type, count, random_, low, high), .content = content_of(type)});
}

void* KernelCase::whole_numbers(DType type, std::size_t count, std::int32_t low,
                                std::int32_t high) {
  const auto choices = static_cast<std::uint64_t>(high - low);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(low) + static_cast<float>(random_.below(choices));
  return add({.before = elements_from(type, values), .content = content_of(type)});
}

std::uint8_t* KernelCase::random_bytes(std::size_t count) {
  Bytes drawn(count);
  random_.fill(drawn);
  return reinterpret_cast<std::uint8_t*>(add({.before = std::move(drawn)}));
}

std::int32_t* KernelCase::integers(std::size_t count, std::uint32_t below) {
  std::vector<std::int32_t> values(count);
  for (std::int32_t& value : values) value = static_cast<std::int32_t>(random_.below(below));
  return constant(values);
}

void* KernelCase::output(DType type, std::size_t count) {
  return add(
      {.before = poison(count * size_of(type)), .content = content_of(type), .written = true});
}

StepResult* KernelCase::output_result() {
  const StepResult zero;
  auto* const result = constant(std::span(&zero, 1));
  operands_.back().content = Content::result;
  operands_.back().written = true;
  operands_.back().kind = MemoryKind::pinned;
  return result;
}

void* KernelCase::both(DType type, std::size_t count, double low, double high) {
  void* const data = input(type, count, low, high);
  operands_.back().written = true;
  return data;
}

StepScalars* KernelCase::scalars(std::int32_t valid) {
  const StepScalars scalars{
      .step = 7,
      .valid = valid,
      .loss_scale = 64,
      .hyper = {.learning_rate = 0.1F, .weight_decay = 1e-3F, .gradient_clip = 0, .step = 7}};
  return constant(std::span(&scalars, 1));
}

/// A call is plain data, so that its pointers can be found by their values.
KernelCall KernelCase::call_at(std::span<std::byte* const> addresses) const {
  KernelCall moved = call;
  std::visit(
      [&]<class Call>(Call& one) {
        static_assert(std::is_trivially_copyable_v<Call>);
#if __has_builtin(__builtin_clear_padding)
        __builtin_clear_padding(&one);  // old bytes there could pass for an operand's address
#endif
        std::array<std::uintptr_t, sizeof(Call) / sizeof(std::uintptr_t)> words;
        std::memcpy(words.data(), &one, sizeof words);
        for (std::uintptr_t& word : words) {
          if (Place place{}; find(operands_, word, place)) {
            word = reinterpret_cast<std::uintptr_t>(addresses[place.operand]) + place.offset;
          }
        }
        std::memcpy(static_cast<void*>(&one), words.data(), sizeof words);
      },
      moved);
  return moved;
}

std::vector<Bytes> KernelCase::before() const {
  std::vector<Bytes> contents;
  for (const Operand& operand : operands_) contents.push_back(operand.before);
  return contents;
}

std::vector<Bytes> KernelCase::run_on_host(std::vector<Bytes> contents) const {
  std::vector<std::byte*> addresses;
  for (Bytes& bytes : contents) addresses.push_back(bytes.data());
  launch_on_host(call_at(addresses));
  return contents;
}

std::string KernelCase::failure(const std::vector<Bytes>& after) const {
  HostResults results(*this, after);
  for (std::size_t k = 0; k < operands_.size(); ++k) {
    if (operands_[k].written || after[k] == operands_[k].before) continue;
    return fmt::format("operand {} was only to be read, and changed", k);
  }
  formula(results);
  return results.failure;
}

KernelCase NamedCase::made(std::uint64_t seed) const {
  KernelCase of(type, Random(seed, std::hash<std::string>{}(name)));
  fill(of);
  return of;
}

std::vector<NamedCase> kernel_cases() {
  std::vector<NamedCase> cases;
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    add_elementwise_cases(cases, type);
    add_batch_norm_cases(cases, type);
    add_pool_cases(cases, type);
    add_step_cases(cases, type);
  }
  add_update_cases(cases);
  return cases;
}

}  // namespace penstock::gpu
