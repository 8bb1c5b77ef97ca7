// SPDX-License-Identifier: Apache-2.0
// A model in one file: averages each channel, then computes one number per class.
//   penstock_custom run --model linear
#include "trainer/model.h"

namespace penstock {

extern constinit const ModelEntry linear_model{
    .name = "linear",
    .summary = "logits from the mean colour of the image",
    .image = {64, 64, 3},
    .batch = 16,
    .build =
        [](Graph& graph, std::int32_t classes) {
          const NodeId mean = graph.add("mean", GlobalAvgPool{}, {Graph::kInput});
          graph.add("logits", Linear{classes}, {mean});
        },
};

}  // namespace penstock
