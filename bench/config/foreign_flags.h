// SPDX-License-Identifier: Apache-2.0
// Flags of tf_cnn_benchmarks and tensorpack's resnet-multigpu.py that Penstock recognises and
// refuses.
#pragma once

#include <span>
#include <string_view>

namespace penstock {

struct ForeignFlag {
  std::string_view name;    ///< snake case
  std::string_view advice;  ///< ends the sentence "--x is unsupported: ..."
};

std::span<const ForeignFlag> foreign_flags();

}  // namespace penstock
