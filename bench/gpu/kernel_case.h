// SPDX-License-Identifier: Apache-2.0
// One call of a Penstock kernel with its operands, as plain data. It can run on the device and on
// the host, so that the results can be compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/gpu/workbench.h"
#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

/// Index of an operand.
using OperandId = std::int32_t;
constexpr OperandId kNoOperand = -1;

struct KernelOperand {
  std::function<Bytes(Random&)> draw{};
  Bytes before{};  ///< empty until filled() draws them
  Content content = Content::bits;
  bool written = false;
  MemoryKind kind = MemoryKind::device;
};

/// The addresses of a case's operands on the device or the host; kNoOperand is null.
class OperandAddresses {
 public:
  explicit OperandAddresses(std::span<std::byte* const> addresses) : addresses_(addresses) {}
  std::byte* operator()(OperandId id) const {
    return id == kNoOperand ? nullptr : addresses_[static_cast<std::size_t>(id)];
  }
  template <typename T>
  T* as(OperandId id) const {
    return reinterpret_cast<T*>((*this)(id));
  }

 private:
  std::span<std::byte* const> addresses_;
};

struct KernelCase {
  std::string name;
  /// Largest relative error in the L2 norm of any operand; for bits, the share of bytes that
  /// differ.
  double tolerance = 0;
  /// True if every byte is equal in each run. False if a struct has padding.
  bool repeats = true;
  std::uint64_t seed = 1;
  std::vector<KernelOperand> operands{};
  std::function<KernelCall(const OperandAddresses&)> call{};
};

/// Draws the operands.
KernelCase filled(KernelCase of);
/// Runs a filled case on the host. Returns the operands after the call.
std::vector<Bytes> run_on_host(const KernelCase& of);

/// Describes operands in the order of their ids. The tolerance follows from `type`.
class CaseBuilder {
 public:
  CaseBuilder(std::string name, DType type, std::uint64_t seed);

  OperandId input(DType type, std::size_t count, double low = -2, double high = 3);
  OperandId floats(std::size_t count, double low = -1, double high = 1) {
    return input(DType::f32, count, low, high);
  }
  /// An input whose bytes `draw` makes.
  OperandId made(std::function<Bytes(Random&)> draw);
  template <typename T>
  OperandId constant(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    return made([copy = Bytes(bytes.begin(), bytes.end())](Random&) { return copy; });
  }
  OperandId random_bits(std::size_t bytes);
  OperandId integers(std::size_t count, std::uint32_t below);
  /// An output. It is poisoned before the call.
  OperandId output(DType type, std::size_t count);
  OperandId output_bits(std::size_t bytes);
  /// An output in pinned memory: a StepResult.
  OperandId output_result();
  /// An operand that the call reads and writes.
  OperandId both(DType type, std::size_t count, double low = -2, double high = 3);
  /// The case's scalars: step 7, a loss scale of 64.
  OperandId scalars(std::int32_t valid);

  KernelCase build(std::function<KernelCall(const OperandAddresses&)> call);

 private:
  OperandId add(KernelOperand operand);

  KernelCase case_;
};

/// All cases, not filled. Few have more than a few million elements.
std::vector<KernelCase> kernel_cases(std::uint64_t seed);

// The parts of kernel_cases(), by file.
void add_elementwise_cases(std::vector<KernelCase>& cases, DType type, std::uint64_t seed);
void add_batch_norm_cases(std::vector<KernelCase>& cases, DType type, std::uint64_t seed);
void add_pool_cases(std::vector<KernelCase>& cases, DType type, std::uint64_t seed);
void add_step_cases(std::vector<KernelCase>& cases, DType type, std::uint64_t seed);
/// Cases that are f32 in every precision.
void add_update_cases(std::vector<KernelCase>& cases, std::uint64_t seed);

/// The number of rows and channels of activations.
struct MatrixShape {
  std::int64_t rows;
  std::int32_t channels;
  std::size_t count() const { return static_cast<std::size_t>(rows * channels); }
  std::string text() const { return std::to_string(rows) + "x" + std::to_string(channels); }
};
/// Shapes of ResNet-50 with two images; then odd numbers of channels, one row, fewer rows than a
/// block has lanes, and more channels than a block has columns.
inline constexpr MatrixShape kMatrixShapes[] = {
    {25088, 64}, {6272, 64}, {6272, 256}, {6272, 128}, {1568, 128}, {1568, 512}, {392, 256},
    {392, 1024}, {98, 512},  {98, 2048},  {1, 1},      {50, 7},     {4099, 3},   {33, 300},
    {20, 8},     {301, 64},  {70, 320},   {9001, 16},  {5, 2056}};

}  // namespace penstock::gpu
