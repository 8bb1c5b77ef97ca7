// SPDX-License-Identifier: Apache-2.0
#include "bench/document/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace penstock::document {

std::string printable(std::string_view text, bool terminal) {
  if (terminal && text == kEraseLine) return std::string(text);
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto is_own = [&](std::string_view own) { return terminal && text.starts_with(own); };
    std::size_t length = 1;
    if (is_own(kRed) || is_own(kGreen) || is_own(kYellow) || is_own(kPlain)) {
      length = text.find('m') + 1;
      safe.append(text.substr(0, length));
    } else if ((at(0) < ' ' && at(0) != '\n' && at(0) != '\t') || at(0) == 0x7f) {
      safe += fmt::format("\\x{:02x}", at(0));
    } else if (at(0) == 0xc2 && text.size() > 1 && at(1) >= 0x80 && at(1) < 0xa0) {
      length = 2;  // the control characters from U+0080 on
      safe += fmt::format("\\x{:02x}", at(1));
    } else {
      safe += text[0];
    }
    text.remove_prefix(length);
  }
  return safe;
}

bool is_terminal(int file) {
  const char* const kind = std::getenv("TERM");
  return isatty(file) != 0 && (kind == nullptr || std::string_view(kind) != "dumb");
}

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
