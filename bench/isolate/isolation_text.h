// SPDX-License-Identifier: Apache-2.0
// Writes the findings of `penstock isolate` for a terminal or a log: the verdict in sentences, then
// the figures.
#pragma once

#include <ostream>

#include "bench/isolate/isolation.h"

namespace penstock::isolate {

/// Writes plain text of at most 100 columns. Names and foreign sentences may be longer.
void write_isolation_text(const Isolation& found, std::ostream& out);

}  // namespace penstock::isolate
