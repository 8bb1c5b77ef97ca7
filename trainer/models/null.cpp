// SPDX-License-Identifier: Apache-2.0
// No model: batches are taken and given back. With it a run measures a feeder's supply.
#include "trainer/model.h"

namespace penstock {

extern constinit const ModelEntry null_model{
    .name = "null",
    .summary = "computes nothing: measures the supply of a feeder",
    .batch = 64,
    .build = [](Graph&, std::int32_t) {},
};

}  // namespace penstock
