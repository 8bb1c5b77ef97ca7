// SPDX-License-Identifier: Apache-2.0
// What a fuzz target is: one function `penstock::fuzz::NAME` in NAME.cpp that gives an input to a
// parser. fuzzer.cpp calls it under libFuzzer, regression_test.cpp over the inputs of corpus/NAME.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "dataflow/error.h"

namespace penstock::fuzz {

using Bytes = std::vector<std::byte>;

/// Returns how many items the parser accepted: 0 if it refused the input, which a DataError does
/// too. Any other exception is a failure.
using Target = std::size_t(std::span<const std::byte> input);

struct TargetEntry {
  std::string_view name;
  Target* use;
};
/// All targets of CMakeLists.txt.
std::span<const TargetEntry> targets();

/// Calls `use`, a Target or one of its steps, with a block of exactly the input's size, so that a
/// sanitizer reports a read of one byte too many. A DataError counts as refused.
template <typename Use>
std::size_t use_input(const Use& use, std::span<const std::byte> input) {
  const Bytes exact(input.begin(), input.end());
  try {
    return use(std::span(exact));
  } catch (const DataError&) {
    return 0;
  }
}

/// Fails the target if its parser contradicts itself. `fault` says how.
inline void ensure(bool holds, const char* fault) {
  if (!holds) throw std::logic_error(fault);
}

inline bool is_inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

/// Reads every byte.
inline void read_all(std::span<const std::byte> bytes) {
  volatile unsigned sink = 0;
  for (const std::byte byte : bytes) sink = sink + std::to_integer<unsigned>(byte);
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace penstock::fuzz
