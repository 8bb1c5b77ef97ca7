// SPDX-License-Identifier: Apache-2.0
// The names of operators for readers: in profiles, traces and files of graphs.
#pragma once

#include <array>
#include <string_view>
#include <variant>

#include "trainer/graph.h"

namespace penstock {

/// "conv2d", "batch_norm".
inline std::string_view name_of(const Op& op) {
  // In the order of the variant.
  constexpr std::array<std::string_view, std::variant_size_v<Op>> kNames = {
      "conv2d", "batch_norm", "relu",         "max_pool", "avg_pool", "global_avg_pool",
      "add",    "concat",     "pad_channels", "linear",   "lrn",      "dropout"};
  return kNames[op.index()];
}

}  // namespace penstock
