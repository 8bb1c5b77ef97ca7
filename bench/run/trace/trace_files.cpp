// SPDX-License-Identifier: Apache-2.0
#include "bench/run/trace/trace_files.h"

#include <sstream>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

void open(const char* flag, const std::string& path, std::optional<OutputFile>& file) {
  if (path.empty()) return;
  try {
    file.emplace(path);
  } catch (const DataError& error) {
    throw ConfigError("{}: {}; name a file in an existing, writable folder", flag, error.what());
  }
}

}  // namespace

std::vector<Flag> trace_flags(TraceOptions& options) {
  constexpr FlagGroup flag{"Output"};
  const auto set_steps = [&options](const std::string& text) {
    options.steps = parse_integer(text, "--trace-steps");
    if (options.steps >= 1) return;
    throw ConfigError("--trace-steps is {}; expected a whole number of at least 1", text);
  };
  return {flag.text("trace_file",
                    "file for a timeline of the first measured steps, for Perfetto or "
                    "chrome://tracing; default: none",
                    options.timeline),
          flag.text("graph_file",
                    "file for the model's graph, by its suffix: .dot (Graphviz), .json or .txt; "
                    "default: none",
                    options.graph),
          flag.text("profile_file",
                    "file for the time by type of operation and by operation in the first measured "
                    "steps; default: none",
                    options.profile, "tfprof_file"),
          flag("trace_steps",
               "steps in the timeline and the profile; above 200 a recorded program is one span",
               "50", set_steps)};
}

TraceFiles::TraceFiles(const TraceOptions& options, const Clock& clock) {
  open("--trace-file", options.timeline, timeline_);
  open("--profile-file", options.profile, profile_);
  if (timeline_ || profile_) trace_.emplace(static_cast<std::size_t>(options.steps), clock);
}

void TraceFiles::discard() {
  timeline_.reset();
  profile_.reset();
}

void TraceFiles::write() {
  if (profile_) {
    constexpr std::size_t kShown = 40;
    profile_->write(trace_->profile().text(kShown));
    profile_->commit();
  }
  if (!timeline_) return;
  std::ostringstream text;
  trace_->write(text);
  timeline_->write(text.view());
  timeline_->commit();
}

}  // namespace penstock
