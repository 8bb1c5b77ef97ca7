// SPDX-License-Identifier: Apache-2.0
#include "bench/run/live_line.h"

#include "bench/report/terminal.h"

namespace penstock {
namespace {

/// Returns to the first column and erases the line.
constexpr const char* kErase = "\r\x1b[K";

}  // namespace

std::size_t LiveLine::width() const {
  const int columns = report::style_of(report::descriptor_of(out_)).width;
  return columns > 1 ? static_cast<std::size_t>(columns - 1) : 1;
}

bool LiveLine::colour() const { return report::style_of(report::descriptor_of(out_)).colour; }

// Failures are ignored, because a progress line must not end the run.

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
