// SPDX-License-Identifier: Apache-2.0
// Tables that the text and the page of `penstock isolate` both show. Without findings they have no
// rows.
#pragma once

#include <optional>
#include <vector>

#include "bench/document/document.h"
#include "bench/isolate/isolation.h"

namespace penstock::isolate {

/// Where a batch's time goes on its way from the producer.
document::Table delivery_table(const std::optional<DeliveryFinding>& delivery);
/// The rate with queues of other depths, replayed from measured times.
document::Table depth_table(const std::vector<Prediction>& depths);
/// The rungs that were measured: what each adds, and what it supplies.
document::Table ladder_table(const std::vector<RungFinding>& ladder);

}  // namespace penstock::isolate
