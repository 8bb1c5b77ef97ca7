// SPDX-License-Identifier: Apache-2.0
// Queries the terminal behind an output stream.
#pragma once

#include <cstdio>

namespace penstock::document {

/// The capabilities of the terminal. Reports for files ignore it.
struct TerminalStyle {
  int width = 100;      ///< columns
  bool colour = false;  ///< ANSI escapes are supported and wanted
};

/// Columns and colours of the terminal at `file`, or defaults for other files. A non-empty NO_COLOR
/// in the environment turns colours off.
TerminalStyle style_of(int file);

bool is_terminal(int file);

/// The descriptor behind `stream`. Also works for standard streams that cli.cpp has replaced.
int descriptor_of(std::FILE* stream);

/// True if both are the same terminal.
bool same_terminal(int a, int b);

}  // namespace penstock::document
