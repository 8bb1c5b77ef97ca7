// SPDX-License-Identifier: Apache-2.0
// Compiles a kernel for each InstructionSet. A kernel is a class whose static run() is always
// inlined.
#pragma once

namespace penstock::jpeg {

template <class Kernel, class... Arguments>
void portable(Arguments... arguments) {
  Kernel::run(arguments...);
}
#if defined(__x86_64__)
template <class Kernel, class... Arguments>
[[gnu::target("avx2")]] void avx2(Arguments... arguments) {
  Kernel::run(arguments...);
}
template <class Kernel, class... Arguments>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq")]] void avx512(Arguments... arguments) {
  Kernel::run(arguments...);
}
#endif

}  // namespace penstock::jpeg
