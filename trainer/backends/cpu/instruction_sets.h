// SPDX-License-Identifier: Apache-2.0
// Which of this CPU's instruction sets oneDNN uses.
#pragma once

#include <string>
#include <string_view>

namespace penstock::cpu {

/// The value of the option that stands for every instruction set of this CPU.
inline constexpr std::string_view kEveryInstructionSet = "all";

/// Lets oneDNN use the instruction set `most` and those below it. It must come before oneDNN's
/// first primitive in this process. Throws ConfigError if the CPU lacks the set or oneDNN does not
/// know it: the text names those that can be chosen. ONEDNN_MAX_CPU_ISA in the environment decides
/// instead if `most` is "all".
void limit_instruction_sets(std::string_view most);

/// Whether oneDNN uses AMX tiles, and other code of this process may.
bool uses_amx();

/// "oneDNN 2.6.3 with avx512_core_amx": what it really uses, whatever was requested.
std::string engine_in_use();

}  // namespace penstock::cpu
