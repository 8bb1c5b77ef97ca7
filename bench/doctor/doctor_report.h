// SPDX-License-Identifier: Apache-2.0
// Shows what `penstock doctor` found, as a document and as JSON. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/doctor/findings.h"
#include "bench/document/document.h"

namespace penstock::doctor {

/// The number in the JSON. A reader may ignore keys that it does not know.
inline constexpr int kSchema = 1;

document::Document document_of(const Observation& seen, const std::vector<Finding>& findings);

/// `findings`, `processes` and the window. Names of figures have their units. A figure of a process
/// is null if it is not known for any of them.
nlohmann::ordered_json to_json(const Observation& seen, const std::vector<Finding>& findings);

}  // namespace penstock::doctor
