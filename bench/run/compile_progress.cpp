// SPDX-License-Identifier: Apache-2.0
#include "bench/run/compile_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/report/terminal.h"

namespace penstock {

CompileProgress::CompileProgress(std::FILE* out, std::string model)
    : out_(out),
      model_(std::move(model)),
      terminal_(report::is_terminal(report::descriptor_of(out))) {}

CompileProgress::~CompileProgress() {
  if (line_open_) std::fputs("\n", out_);
}

void CompileProgress::update(std::size_t done, std::size_t total) {
  update_at(std::chrono::steady_clock::now() - start_, done, total);
}

void CompileProgress::update_at(Nanoseconds since_start, std::size_t done, std::size_t total) {
  if (since_start < std::chrono::seconds(1) || total == 0) return;
  const std::string text =
      fmt::format("penstock: compiling {}: {} of {} operators", model_, done, total);
  if (terminal_) {
    std::fputs(("\r" + text).c_str(), out_);
    line_open_ = true;
  } else if (const std::size_t quarter = 4 * done / total; quarter > quarters_) {
    quarters_ = quarter;
    std::fputs((text + "\n").c_str(), out_);
  }
  std::fflush(out_);
}

}  // namespace penstock
