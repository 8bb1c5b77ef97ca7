// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/cpu/instruction_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "dataflow/error.h"
#include "trainer/backends/cpu/onednn.h"
#include "trainer/backends/cpu/weight_gradient.h"

namespace penstock::cpu {
namespace {

struct InstructionSet {
  std::string_view name;  // oneDNN's, in lower case
  dnnl::cpu_isa isa;
  bool (*is_here)();
};

/// In ascending order.
constexpr InstructionSet kSets[] = {
    {"sse41", dnnl::cpu_isa::sse41, [] { return __builtin_cpu_supports("sse4.1") != 0; }},
    {"avx", dnnl::cpu_isa::avx, [] { return __builtin_cpu_supports("avx") != 0; }},
    {"avx2", dnnl::cpu_isa::avx2, [] { return __builtin_cpu_supports("avx2") != 0; }},
    {"avx512_core", dnnl::cpu_isa::avx512_core,
     [] { return __builtin_cpu_supports("avx512bw") != 0; }},
    {"avx512_core_vnni", dnnl::cpu_isa::avx512_core_vnni,
     [] { return __builtin_cpu_supports("avx512vnni") != 0; }},
    {"avx512_core_bf16", dnnl::cpu_isa::avx512_core_bf16,
     [] { return __builtin_cpu_supports("avx512bf16") != 0; }},
#if DNNL_VERSION_MAJOR >= 3
    {"avx512_core_fp16", dnnl::cpu_isa::avx512_core_fp16,
     [] { return __builtin_cpu_supports("avx512fp16") != 0; }},
#endif
    {"avx512_core_amx", dnnl::cpu_isa::avx512_core_amx,
     [] { return __builtin_cpu_supports("amx-bf16") != 0; }},
};

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

}  // namespace

void limit_instruction_sets(std::string_view most) {
  if (most == kEveryInstructionSet) {
    if (is_set("ONEDNN_MAX_CPU_ISA") || is_set("DNNL_MAX_CPU_ISA")) return;
    dnnl::set_max_cpu_isa(onednn::kEveryIsa);
    return;
  }
  std::vector<std::string_view> here;
  for (const InstructionSet& set : kSets) {
    if (!set.is_here()) continue;
    if (set.name == most) {
      dnnl::set_max_cpu_isa(set.isa);
      return;
    }
    here.push_back(set.name);
  }
  throw ConfigError(
      "this CPU has no instruction set '{}' that oneDNN can use; choose {} or one of {}", most,
      kEveryInstructionSet, fmt::join(here, ", "));
}

bool uses_amx() {
  // A set is a number with a bit for each extension.
  const auto tiles = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  const auto used = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (used & tiles) == tiles && WeightGradient::is_available();
}

std::string engine_in_use() {
  const dnnl_version_t& version = *dnnl::version();
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  const auto* const known =
      std::ranges::find_if(kSets, [&](const InstructionSet& set) { return set.isa == isa; });
  return fmt::format("oneDNN {}.{}.{} with {}", version.major, version.minor, version.patch,
                     known != std::end(kSets)
                         ? std::string(known->name)
                         : fmt::format("instruction set {:#x}", static_cast<unsigned>(isa)));
}

}  // namespace penstock::cpu
