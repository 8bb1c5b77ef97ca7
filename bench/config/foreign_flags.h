// SPDX-License-Identifier: Apache-2.0
// Flags of other systems: those that set keys of RunConfig, and those that Penstock recognises and
// refuses.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"

namespace penstock {

/// A flag of tf_cnn_benchmarks or of tensorpack's resnet-multigpu.py that is refused.
struct ForeignFlag {
  std::string_view name;    ///< snake case
  std::string_view advice;  ///< ends the sentence "--x is unsupported: ..."
  /// Its default there, which changes nothing, so that it is accepted; none: not known.
  std::optional<std::string_view> fallback{};
};

std::span<const ForeignFlag> foreign_flags();

/// Flags that change values of other flags, or add options to components that those name. So apply
/// them after the flags of the keys.
std::vector<Flag> translated_flags(RunConfig& config);

}  // namespace penstock
