// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run_line.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

void RunLine::begin(std::string what, std::string left_is, double left_s) {
  what_ = std::move(what);
  left_is_ = std::move(left_is);
  left_s_ = left_s;
  running({});
}

void RunLine::running(const Progress& progress) {
  if (!line_.single()) return;
  const std::string left = fmt::format("; {}{} left", left_is_,
                                       duration_text(std::max(0.0, left_s_ - progress.elapsed_s)));
  Progress shown = progress;
  shown.left_s = 0;  // hide the time left for one run; the total matters more
  const std::size_t width = line_.width(), around = what_.size() + 2 + left.size();
  if (around >= width) return line_.pass(what_.substr(0, width));
  line_.pass(what_ + ": " + progress_text(shown, width - around, line_.colour()) + left);
}

void RunLine::end(const std::string& text, bool stays) {
  if (!line_.single() || stays) return line_.print(text);
  line_.pass(text.substr(0, line_.width()));
}

}  // namespace penstock
