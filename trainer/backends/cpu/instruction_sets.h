// SPDX-License-Identifier: Apache-2.0
// Which of this CPU's instruction sets oneDNN uses.
#pragma once

#include <string>
#include <string_view>

namespace penstock::cpu {

/// The value of the option that stands for every instruction set of this CPU.
inline constexpr std::string_view kEveryInstructionSet = "all";

/// Limits oneDNN to the instruction set `most` and those below it, for this process. With "all", it
/// uses every set of the CPU, or what ONEDNN_MAX_CPU_ISA in the environment allows. Must come
/// before oneDNN's first primitive. Throws ConfigError, which names the sets that can be chosen, if
/// the CPU or oneDNN lacks the set; and if another limit was chosen before.
void limit_instruction_sets(std::string_view most);

/// Whether oneDNN uses AMX tiles, and other code of this process may.
bool uses_amx();

/// "oneDNN 2.6.3 with avx512_core_amx": what it really uses, whatever was requested.
std::string engine_in_use();

}  // namespace penstock::cpu
