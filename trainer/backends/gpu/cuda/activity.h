// SPDX-License-Identifier: Apache-2.0
// What GPUs did, from CUPTI's activity records. CUPTI is opened when it is first asked for: without
// it there is a reason instead of records. A process has one user of CUPTI, Nsight Systems
// included.
//
// Times: CUPTI maps the GPU's clock to the host's by itself, and asks us for the latter, so that
// its records are on the steady clock. One pair of readings at the start corrects for a CUPTI that
// asks nobody.
//
// Records of ranges (NVTX) are not asked for: the harness has these times itself.
#pragma once

#include <string>
#include <vector>

#include "trainer/activity.h"

namespace penstock::gpu {

/// Returns why nothing will be recorded, or nothing. One thread at a time, as for the next.
std::string start_activity(ActivityDetail detail);
/// With the devices idle. In no particular order.
std::vector<ActivityRecord> finish_activity();

}  // namespace penstock::gpu
