// SPDX-License-Identifier: Apache-2.0
// `null`: batches are taken and returned, so a run measures the throughput of a feeder. `any`: the
// least model that trains.
#include "trainer/model.h"

namespace penstock {

extern constinit const ModelEntry null_model{
    .name = "null",
    .summary = "computes nothing: measures the supply of a feeder",
    .batch = 64,
    .computes = false,
    .takes_any = true,
    .build = [](Graph&, std::int32_t) {},
};

extern constinit const ModelEntry any_model{
    .name = kAnyModel,
    .summary = "one linear layer: on an emulated device it stands for your model of any batches",
    .batch = 64,
    .takes_any = true,
    .build = [](Graph& graph,
                std::int32_t classes) { graph.add("logits", Linear{classes}, {Graph::kInput}); },
};

}  // namespace penstock
