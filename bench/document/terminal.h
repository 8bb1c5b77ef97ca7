// SPDX-License-Identifier: Apache-2.0
// Queries the terminal behind an output stream.
#pragma once

#include <cstdio>

#include "bench/report/report.h"

namespace penstock::report {

/// Columns and colours of the terminal at `file`, or defaults for other files. A non-empty NO_COLOR
/// in the environment turns colours off.
ReportStyle style_of(int file);

bool is_terminal(int file);

/// The descriptor behind `stream`. Also works for standard streams that cli.cpp has replaced.
int descriptor_of(std::FILE* stream);

/// True if both are the same terminal.
bool same_terminal(int a, int b);

}  // namespace penstock::report
