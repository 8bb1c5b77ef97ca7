// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/progress_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/document/terminal.h"
#include "dataflow/error.h"

namespace penstock {

std::size_t LiveLine::width() const {
  const int columns = document::style_of(document::descriptor_of(out_)).width;
  return columns > 1 ? static_cast<std::size_t>(columns - 1) : 1;
}

bool LiveLine::colour() const { return document::style_of(document::descriptor_of(out_)).colour; }

// Failures are ignored, because a progress line must not end the run.

void LiveLine::pass(const std::string& text) {
  if (!single_) return;
  std::fputs(document::kEraseLine.data(), out_);
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
  std::fputs(document::kEraseLine.data(), out_);
  std::fflush(out_);
  open_ = false;
}

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

JobLine::JobLine(std::FILE* out)
    : line_(out, document::is_terminal(document::descriptor_of(out))) {}

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

void ResultSaver::save(const std::function<void()>& write,
                       const std::function<void(const std::string&)>& print) {
  try {
    write();
    saved_ = true;
  } catch (const DataError& error) {
    if (!begun_) {
      throw ConfigError("{}; give --out a folder that can be written", error.what());
    }
    if (saved_) {
      print(fmt::format(
          "penstock: {}; the files are those before this run, and the measurement goes on",
          error.what()));
    }
    saved_ = false;
  }
  begun_ = true;
}

}  // namespace penstock
