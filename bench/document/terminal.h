// SPDX-License-Identifier: Apache-2.0
// Queries the terminal behind an output stream.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace penstock::document {

// The escape sequences that the program writes. kEraseLine returns to the first column and erases
// the line; it is written alone.
inline constexpr std::string_view kRed = "\x1b[31m", kGreen = "\x1b[32m", kYellow = "\x1b[33m",
                                  kPlain = "\x1b[0m", kEraseLine = "\r\x1b[K";

/// The one door of all text to standard output and standard error (cli.cpp), because names of files
/// and producers and messages of loaders come from outside. Control characters, except line ends
/// and tabs, become text such as "\x1b". On a terminal the sequences above pass.
std::string printable(std::string_view text, bool terminal);

/// The capabilities of the terminal. Reports for files ignore it.
struct TerminalStyle {
  int width = 100;      ///< columns
  bool colour = false;  ///< ANSI escapes are supported and wanted
};

/// Columns and colours of the terminal at `file`, or defaults for other files. A non-empty NO_COLOR
/// in the environment turns colours off.
TerminalStyle style_of(int file);

/// A terminal that knows escape sequences: TERM is not "dumb".
bool is_terminal(int file);

/// The descriptor behind `stream`. Also works for standard streams that cli.cpp has replaced.
int descriptor_of(std::FILE* stream);

/// True if both are the same terminal.
bool same_terminal(int a, int b);

}  // namespace penstock::document
