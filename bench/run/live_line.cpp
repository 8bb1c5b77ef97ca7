// SPDX-License-Identifier: Apache-2.0
#include "bench/live_line.h"

#include "bench/terminal.h"

namespace penstock {
namespace {

/// Back to the first column, and nothing to the right of it.
constexpr const char* kErase = "\r\x1b[K";

}  // namespace

std::size_t LiveLine::width() const {
  const int columns = style_of(descriptor_of(out_)).width;
  return columns > 1 ? static_cast<std::size_t>(columns - 1) : 1;
}

bool LiveLine::colour() const { return style_of(descriptor_of(out_)).colour; }

// Failures are ignored: a progress line that cannot be shown ends nothing.

void LiveLine::pass(const std::string& text) {
  if (!single_) return;
  std::fputs(kErase, out_);
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
  open_ = true;
}

void LiveLine::print(const std::string& text) {
  clear();
  std::fputs((text + "\n").c_str(), out_);
  std::fflush(out_);
}

void LiveLine::clear() {
  if (!open_) return;
  std::fputs(kErase, out_);
  std::fflush(out_);
  open_ = false;
}

}  // namespace penstock
