// SPDX-License-Identifier: Apache-2.0
// A model of one layer, for runs in which the model does not matter.
#pragma once

#include "trainer/model.h"

namespace penstock {

inline constexpr ModelEntry kTinyModel{
    .name = "tiny",
    .image = {2, 2, 3},
    .batch = 64,
    .build = [](Graph& graph,
                std::int32_t classes) { graph.add("logits", Linear{classes}, {Graph::kInput}); },
};

}  // namespace penstock
