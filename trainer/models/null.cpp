// SPDX-License-Identifier: Apache-2.0
// No model: batches are taken and returned. A run with it measures the throughput of a feeder.
#include "trainer/model.h"

namespace penstock {

extern constinit const ModelEntry null_model{
    .name = "null",
    .summary = "computes nothing: measures the supply of a feeder",
    .batch = 64,
    .computes = false,
    .build = [](Graph&, std::int32_t) {},
};

}  // namespace penstock
