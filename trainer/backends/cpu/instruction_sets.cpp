// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/cpu/instruction_sets.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <mutex>
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

/// A bit of the CPU's features, for those that the compiler has no name for.
enum Register { eax, edx };
bool has_feature(Register where, int bit) {
  std::array<unsigned, 4> words{};  // EAX, EBX, ECX, EDX of leaf 7, subleaf 1
  if (__get_cpuid_count(7, 1, &words[0], &words[1], &words[2], &words[3]) == 0) return false;
  return ((words[where == eax ? 0 : 3] >> bit) & 1U) != 0;
}

/// In ascending order.
constexpr InstructionSet kSets[] = {
    {"sse41", dnnl::cpu_isa::sse41, [] { return __builtin_cpu_supports("sse4.1") != 0; }},
    {"avx", dnnl::cpu_isa::avx, [] { return __builtin_cpu_supports("avx") != 0; }},
    {"avx2", dnnl::cpu_isa::avx2, [] { return __builtin_cpu_supports("avx2") != 0; }},
    {"avx2_vnni", dnnl::cpu_isa::avx2_vnni, [] { return has_feature(eax, 4); }},
#if DNNL_VERSION_MAJOR >= 3
    {"avx2_vnni_2", dnnl::cpu_isa::avx2_vnni_2,
     [] { return has_feature(edx, 4) && has_feature(edx, 5); }},
#endif
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
    {"avx512_core_amx", dnnl::cpu_isa::avx512_core_amx, &WeightGradient::is_available},
#if DNNL_VERSION_MAJOR >= 3
    {"avx512_core_amx_fp16", dnnl::cpu_isa::avx512_core_amx_fp16,
     [] { return has_feature(eax, 21); }},
#endif
};

dnnl::cpu_isa find_set(std::string_view name) {
  std::vector<std::string_view> here;
  for (const InstructionSet& set : kSets) {
    if (!set.is_here()) continue;
    if (set.name == name) return set.isa;
    here.push_back(set.name);
  }
  throw ConfigError(
      "this CPU has no instruction set '{}' that oneDNN can use; choose {} or one of {}", name,
      kEveryInstructionSet, fmt::join(here, ", "));
}

}  // namespace

void limit_instruction_sets(std::string_view most) {
  static std::mutex mutex;
  static std::string chosen;
  const std::scoped_lock lock(mutex);
  if (chosen == most) return;
  const bool limits = most != kEveryInstructionSet;
  const dnnl::cpu_isa set = limits ? find_set(most) : dnnl::cpu_isa{};
  if (!chosen.empty() || (limits && dnnl::set_max_cpu_isa(set) != dnnl::status::success)) {
    throw ConfigError(
        "this process computes with cpu:isa={} already; use another process for cpu:isa={}",
        chosen.empty() ? kEveryInstructionSet : std::string_view(chosen), most);
  }
  chosen = most;
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
