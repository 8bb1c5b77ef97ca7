// SPDX-License-Identifier: Apache-2.0
// Converts a CUPTI record to an ActivityRecord.
#pragma once

#include <cupti.h>

#include "trainer/activity.h"

namespace penstock::gpu {

/// Adds `to_steady` to CUPTI's times. Returns false for a record without times and for a kind that
/// traces do not use.
bool to_activity(const CUpti_Activity& record, Nanoseconds to_steady, ActivityRecord& ours);

}  // namespace penstock::gpu
