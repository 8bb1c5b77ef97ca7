// SPDX-License-Identifier: Apache-2.0
// Judges an observation: which conditions of the machine may slow the training down. Pure
// functions; any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/doctor/process_tree.h"

namespace penstock::doctor {

enum class Severity : std::uint8_t { ok, look, problem, unknown };
/// "ok", "worth a look", "problem", "not known".
std::string_view to_string(Severity severity);

struct Finding {
  std::string_view check{};  ///< such as "cores"
  Severity severity = Severity::ok;
  std::string found{};  ///< with units; if not known, the reason
  std::vector<std::pair<std::string_view, double>> figures{};  ///< names with units, and values
  /// What it may cost, how to find out, and what to do. The same for all findings of a check.
  std::string_view cost{}, find_out{}, remedy{};
};

/// The window of one process. Figures that are not known are 0; Observation::reasons names them.
struct ProcessUse {
  std::int32_t pid = 0;
  std::string name;
  double cpu_cores = 0;                        ///< mean
  double wait_cores = 0;                       ///< mean number of runnable threads without a core
  std::int32_t threads = 0, busy_threads = 0;  ///< busy: runnable for 10 % of the window or more
  double preemptions_per_s = 0;                ///< involuntary context switches
  double rss_bytes = 0, growth_bytes_per_s = 0;
  double major_faults_per_s = 0;
  double read_bytes_per_s = 0;
};

double window_s(const Observation& seen);

/// The processes that ran at the end of the window, those with the most CPU time first.
std::vector<ProcessUse> uses_of(const Observation& seen);

/// Processors that the tree may use, limited by the CPU quota; 0: not known.
double usable_cores(const Observation& seen);

/// One finding for each check: problems first, then those worth a look, not known, and ok.
std::vector<Finding> findings_of(const Observation& seen);

}  // namespace penstock::doctor
