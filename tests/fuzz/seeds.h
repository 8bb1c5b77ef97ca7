// SPDX-License-Identifier: Apache-2.0
// What a fuzzer begins with: good inputs, made by the program's own writers when it is asked for
// them, so that no corpus has to be kept.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock {

/// Each fuzzer defines its own. Where the environment variable PENSTOCK_FUZZ_SEEDS names a folder,
/// the fuzzer writes them there before it reads its corpus.
std::vector<std::vector<std::byte>> fuzz_seeds();

}  // namespace penstock
