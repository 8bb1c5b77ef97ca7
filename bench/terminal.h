// SPDX-License-Identifier: Apache-2.0
// What stands at the other end of an output stream.
#pragma once

#include <cstdio>

#include "bench/report.h"

namespace penstock {

/// Columns and colours of a terminal at `file`, or what suits a file. NO_COLOR in the environment,
/// unless it is empty, takes colours away.
ReportStyle style_of(int file);

bool is_terminal(int file);

/// The descriptor behind `stream`, also of standard streams that cli.cpp has replaced.
int descriptor_of(std::FILE* stream);

/// Are both the same terminal?
bool same_terminal(int a, int b);

}  // namespace penstock
