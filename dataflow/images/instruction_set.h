// SPDX-License-Identifier: Apache-2.0
// The vector instructions for which pixel code is compiled. Results are the same with all of them.
#pragma once

#include <cstdint>

namespace penstock {

/// portable: the build's own instruction set.
enum class InstructionSet : std::uint8_t { portable, avx2, avx512 };

/// The widest instruction set of this processor.
inline InstructionSet best_instruction_set() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return InstructionSet::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) return InstructionSet::avx2;
#endif
  return InstructionSet::portable;
}

#if defined(__x86_64__)
#define PENSTOCK_TARGET(features) [[gnu::target(features)]]
#else
#define PENSTOCK_TARGET(features)
#endif

// Compile a kernel for each InstructionSet, in its order: tables of kernels have an entry for each.
// A kernel is a class whose static run() is always inlined.
template <class Kernel, class... Arguments>
void portable(Arguments... arguments) {
  Kernel::run(arguments...);
}
template <class Kernel, class... Arguments>
PENSTOCK_TARGET("avx2")
void avx2(Arguments... arguments) {
  Kernel::run(arguments...);
}
template <class Kernel, class... Arguments>
PENSTOCK_TARGET("avx512f,avx512bw,avx512vl,avx512dq")
void avx512(Arguments... arguments) {
  Kernel::run(arguments...);
}

}  // namespace penstock
