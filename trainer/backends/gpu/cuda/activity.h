// SPDX-License-Identifier: Apache-2.0
// Records of what GPUs did, from CUPTI's activity API. CUPTI is opened at the first use; if it is
// missing, the caller gets a reason instead of records. Only one user of CUPTI is possible per
// process; Nsight Systems counts as one.
//
// Times: CUPTI maps the GPU's clock to the host's clock and asks Penstock for the host's time, so
// its records are on the steady clock. Some versions of CUPTI do not ask; a pair of readings at the
// start, the closest of several, corrects for them.
//
// Ranges (NVTX) are not recorded: the harness measures these times itself.
#pragma once

#include <cupti.h>

#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/activity.h"

namespace penstock::gpu {

/// Starts recording. Returns the reason if nothing will be recorded, else an empty string. This
/// call and finish_activity() need one thread at a time.
std::string start_activity(ActivityDetail detail);
/// Ends recording. The devices must be idle. The records are in no particular order.
std::vector<ActivityRecord> finish_activity();

/// Converts a record of CUPTI and adds `to_steady` to its times. Returns false for a record without
/// times and for a kind that traces do not use.
bool to_activity(const CUpti_Activity& record, Nanoseconds to_steady, ActivityRecord& ours);

}  // namespace penstock::gpu
