// SPDX-License-Identifier: Apache-2.0
#include "bench/document/terminal.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace penstock::document {

bool is_terminal(int file) { return isatty(file) != 0; }

int descriptor_of(std::FILE* stream) {
  if (stream == stdout) return STDOUT_FILENO;
  return stream == stderr ? STDERR_FILENO : fileno(stream);
}

bool same_terminal(int a, int b) {
  struct stat of_a {
  }, of_b{};
  return is_terminal(a) && is_terminal(b) && fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 &&
         of_a.st_rdev == of_b.st_rdev;
}

TerminalStyle style_of(int file) {
  TerminalStyle style;
  if (!is_terminal(file)) return style;
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  const char* const no_colour = std::getenv("NO_COLOR");
  style.colour = no_colour == nullptr || *no_colour == 0;
  return style;
}

}  // namespace penstock::document
