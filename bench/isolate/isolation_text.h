// SPDX-License-Identifier: Apache-2.0
// What was isolated, for a terminal or a log: the verdict in words, then the figures behind it.
#pragma once

#include <ostream>

#include "bench/isolate/isolation.h"

namespace penstock {

/// Plain text, at most 100 columns but for names and sentences of others.
void write_isolation_text(const Isolation& found, std::ostream& out);

}  // namespace penstock
