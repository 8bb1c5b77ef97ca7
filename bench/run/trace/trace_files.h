// SPDX-License-Identifier: Apache-2.0
// The files in which a run shows its first measured steps and its model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/config/flags.h"
#include "bench/run/trace/trace.h"
#include "dataflow/machine/output_file.h"

namespace penstock {

struct TraceOptions {
  std::string timeline, profile, graph;  ///< files; empty: none
  std::int64_t steps = 50;               ///< in the timeline and the profile
};

std::vector<Flag> trace_flags(TraceOptions& options);

/// The trace of a run and its files, which are opened before the measurement.
class TraceFiles {
 public:
  /// `clock` must outlive the object. Throws ConfigError if a file cannot be written.
  TraceFiles(const TraceOptions& options, const Clock& clock);

  Trace* trace() noexcept { return trace_ ? &*trace_ : nullptr; }
  /// Removes the unfinished files. Not during write().
  void discard();
  /// Call after the run. Throws DataError.
  void write();

 private:
  std::optional<OutputFile> timeline_, profile_;
  std::optional<Trace> trace_;
};

}  // namespace penstock
