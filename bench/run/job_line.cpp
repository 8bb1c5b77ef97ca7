// SPDX-License-Identifier: Apache-2.0
#include "bench/run/job_line.h"

#include <fmt/format.h>

#include "bench/report/terminal.h"

namespace penstock {

JobLine::JobLine(std::FILE* out) : line_(out, report::is_terminal(report::descriptor_of(out))) {}

void JobLine::update(std::string_view what, std::uint64_t done, std::uint64_t total,
                     std::string_view unit) {
  update_at(std::chrono::steady_clock::now() - start_, what, done, total, unit);
}

void JobLine::update_at(Nanoseconds since_start, std::string_view what, std::uint64_t done,
                        std::uint64_t total, std::string_view unit) {
  constexpr Nanoseconds kOnTerminal = std::chrono::milliseconds(100);
  constexpr Nanoseconds kElsewhere = std::chrono::seconds(5);
  if (since_start < next_ || total == 0) return;
  next_ = since_start + (line_.single() ? kOnTerminal : kElsewhere);
  const std::string text = fmt::format("{}: {} of {} {}", what, done, total, unit);
  if (line_.single()) return line_.pass(text.substr(0, line_.width()));
  line_.print("penstock: " + text);
}

}  // namespace penstock
