// SPDX-License-Identifier: Apache-2.0
// From a record of CUPTI's to one of ours.
#pragma once

#include <cupti.h>

#include "trainer/activity.h"

namespace penstock::gpu {

/// `to_steady` is added to CUPTI's times. False: a record without times, or of a kind that traces
/// have no use for.
bool to_activity(const CUpti_Activity& record, Nanoseconds to_steady, ActivityRecord& ours);

}  // namespace penstock::gpu
