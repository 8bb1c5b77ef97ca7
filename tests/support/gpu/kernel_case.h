// SPDX-License-Identifier: Apache-2.0
// The cases of Penstock's kernels: a call, its operands in the host's memory, and the formula of
// its results in double. One table of cases serves the tests on the host (against the formulas, and
// against the lists of accesses) and the checks on a GPU (against the host's results).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "dataflow/device.h"
#include "tests/support/gpu/elements.h"
#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

/// Compares the results of a call with its formula. Addresses are those of the case's call.
class Results {
 public:
  virtual ~Results() = default;
  /// Element `i` after the call.
  virtual double after(const void* data, DType type, std::size_t i) const = 0;
  /// The memory after the call, for data that is not an array of elements.
  virtual const std::byte* memory_after(const void* data) const = 0;
  /// Notes a result that differs by more than `tolerance`.
  virtual void expect(const void* data, std::size_t i, double found, double expected,
                      double tolerance) = 0;

  /// The result of float arithmetic that is rounded to `type` once. The sizes of its terms add up
  /// to `size`; each term is rounded at most `roundings` times.
  void rounded(const void* data, DType type, std::size_t i, double expected, double size,
               double roundings = 8);
  void near(const float* data, std::size_t i, double expected, double tolerance) {
    expect(data, i, after(data, DType::f32, i), expected, tolerance);
  }
  /// A whole number.
  template <typename T>
  void equal(const T* data, std::size_t i, T expected) {
    expect(data, i, double(reinterpret_cast<const T*>(memory_after(data))[i]), double(expected), 0);
  }
};

class KernelCase {
 public:
  struct Operand {
    Bytes before;
    Content content = Content::bits;
    bool written = false;
    MemoryKind kind = MemoryKind::device;
  };

  /// On a device, relative errors in the L2 norm follow from `type`.
  KernelCase(DType type, const Random& random);
  KernelCase(KernelCase&&) = default;  // operands keep their addresses

  // Operands; the case owns their memory.
  void* input(DType type, std::size_t count, double low = -2, double high = 3);
  float* floats(std::size_t count, double low = -1, double high = 1) {
    return static_cast<float*>(input(DType::f32, count, low, high));
  }
  /// Whole numbers in [low, high).
  void* whole_numbers(DType type, std::size_t count, std::int32_t low, std::int32_t high);
  template <std::ranges::contiguous_range Values>
  auto* constant(const Values& values) {
    const auto bytes = std::as_bytes(std::span(values));
    using Value = std::ranges::range_value_t<Values>;
    return reinterpret_cast<Value*>(add({.before = {bytes.begin(), bytes.end()}}));
  }
  std::uint8_t* random_bytes(std::size_t count);
  std::int32_t* integers(std::size_t count, std::uint32_t below);
  /// An output. It is poisoned before the call.
  void* output(DType type, std::size_t count);
  float* output_floats(std::size_t count) { return static_cast<float*>(output(DType::f32, count)); }
  template <typename T>
  T* output_bits(std::size_t count) {
    return reinterpret_cast<T*>(add({.before = poison(count * sizeof(T)), .written = true}));
  }
  /// An output in pinned memory.
  StepResult* output_result();
  /// An operand that the call reads and writes.
  void* both(DType type, std::size_t count, double low = -2, double high = 3);
  /// Step 7, a loss scale of 64.
  StepScalars* scalars(std::int32_t valid);
  /// The same, which the call changes.
  StepScalars* changing_scalars() {
    StepScalars* const scalars = this->scalars(3);
    operands_.back().written = true;
    return scalars;
  }

  const std::vector<Operand>& operands() const { return operands_; }
  /// The call with its operands at other addresses.
  KernelCall call_at(std::span<std::byte* const> addresses) const;
  std::vector<Bytes> before() const;
  /// Runs the call on operands of these contents (see launch_on_host()). Returns what they become.
  std::vector<Bytes> run_on_host(std::vector<Bytes> contents) const;
  std::vector<Bytes> run_on_host() const { return run_on_host(before()); }
  /// What is wrong with the operands after the call, by the formula; empty if all is right.
  std::string failure(const std::vector<Bytes>& after) const;

  KernelCall call{};
  std::function<void(Results&)> formula{};
  /// Between host and device: the largest relative error in the L2 norm of any operand; for bits,
  /// the share of bytes that differ.
  double tolerance = 0;
  /// True if every byte is equal in each run. False if a struct has padding.
  bool repeats = true;

 private:
  std::byte* add(Operand operand);

  Random random_;
  std::vector<Operand> operands_;
};

struct NamedCase {
  std::string name;  ///< begins with the kernel's
  DType type = DType::f32;
  std::size_t elements = 0;  ///< about as many are computed
  std::function<void(KernelCase&)> fill;

  KernelCase made(std::uint64_t seed = 1) const;
};

/// Few cases have more than a few million elements.
std::vector<NamedCase> kernel_cases();

// The parts of kernel_cases(), by file.
void add_elementwise_cases(std::vector<NamedCase>& cases, DType type);
void add_batch_norm_cases(std::vector<NamedCase>& cases, DType type);
void add_pool_cases(std::vector<NamedCase>& cases, DType type);
void add_step_cases(std::vector<NamedCase>& cases, DType type);
/// Cases that are f32 in every precision.
void add_update_cases(std::vector<NamedCase>& cases);

/// The number of rows and channels of activations.
struct MatrixShape {
  std::int64_t rows;
  std::int32_t channels;
  std::size_t count() const { return static_cast<std::size_t>(rows * channels); }
  std::size_t columns() const { return static_cast<std::size_t>(channels); }
  std::string text() const { return std::to_string(rows) + "x" + std::to_string(channels); }
};
/// Shapes of ResNet-50 with two images; then odd numbers of channels, one row, fewer rows than a
/// block has lanes, and more channels than a block has columns.
inline constexpr MatrixShape kMatrixShapes[] = {
    {25088, 64}, {6272, 64}, {6272, 256}, {6272, 128}, {1568, 128}, {1568, 512}, {392, 256},
    {392, 1024}, {98, 512},  {98, 2048},  {1, 1},      {50, 7},     {4099, 3},   {33, 300},
    {20, 8},     {301, 64},  {70, 320},   {9001, 16},  {5, 2056}};
/// Above this number of elements, a case adds nothing for the host's tests.
constexpr std::size_t kLargeCase = 150'000;

/// Element `i` before the call, of an operand of the type.
inline double value(const void* data, DType type, std::size_t i) {
  return element_of(data, content_of(type), i);
}
inline bool bit_of(const std::uint8_t* mask, std::size_t i) {
  return (mask[i / 8] >> (i % 8) & 1) != 0;
}

}  // namespace penstock::gpu
