// SPDX-License-Identifier: Apache-2.0
// Judges an observation: which conditions of the machine may slow the training down. Pure
// functions; any thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/doctor/process_tree.h"

namespace penstock::doctor {

enum class Severity : std::uint8_t { ok, look, problem, unknown };
/// "ok", "worth a look", "problem", "not known".
std::string_view to_string(Severity severity);
/// A problem, or worth a look.
bool is_bad(Severity severity);

struct Finding {
  std::string_view check{};  ///< such as "cores"
  Severity severity = Severity::ok;
  std::string found{};  ///< with units; if not known, the reason
  std::vector<std::pair<std::string_view, double>> figures{};  ///< names with units, and values
  /// Seconds that threads waited in each second, or cores that were taken; none: not known, or ok.
  std::optional<double> lost{};
  std::string_view lost_unit{};  ///< "s of waiting in each second", "cores"
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

/// Why there is nothing to judge yet: it does nothing, or has not started its workers. Empty: it
/// runs.
std::string not_begun(const Observation& seen);

/// Growth of memory is judged from this window on; in a shorter one caches fill.
inline constexpr double kGrowthWindowS = 60;
inline bool tells_growth(const Observation& seen) { return window_s(seen) >= kGrowthWindowS; }

/// One finding for each check: problems and those worth a look, the most lost first and then those
/// whose loss is not known; then not known, and ok. None if it has not begun.
std::vector<Finding> findings_of(const Observation& seen);

}  // namespace penstock::doctor
