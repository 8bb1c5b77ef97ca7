// SPDX-License-Identifier: Apache-2.0
// What changed between two sets of results, with what is not known about it. Only like is compared
// with like: rates of different workloads say nothing about each other.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/statistics/estimate.h"
#include "bench/sweep_result.h"

namespace penstock {

struct CompareOptions {
  double margin = 0.01;  ///< changes within it do not matter
  /// Keys of RunConfig that may differ though they belong to the workload.
  std::vector<std::string> allowed{};
  /// "KEY=A:B", several of them separated by ';'. Values may contain colons: A is a value of a row
  /// of `before`, and B of one of `after`.
  std::string renamed{};
};

/// One configuration in both.
struct RowChange {
  std::string label;
  double before_img_per_s = 0, after_img_per_s = 0;  ///< geometric means; 0: none
  Estimate change_percent;  ///< of the rate, 100 (after / before - 1), by Welch; see unpaired.h
  Verdict verdict = Verdict::undecided;
  std::string reason;  ///< where undecided: why, and what would decide
};

struct Comparison {
  double margin = 0;
  std::vector<std::string> obstacles;    ///< why the two cannot be compared; then there are no rows
  std::vector<std::string> settings;     ///< that changed and may, "prefetch: 3 -> 4"
  std::vector<std::string> environment;  ///< that changed, the same way
  std::vector<std::string> unmatched;    ///< configurations that are in one only
  std::vector<RowChange> rows;
};

/// Rows match where the settings that tell rows apart are equal, but for how long was measured
/// where that leaves one row on either side; a single row matches a single one. Obstacles are
/// differences in what is trained on what: model, device, precision, num_gpus, batch_size,
/// image_size, classes, forward_only, eval; the feeder and those of its options that change data;
/// for feeders that read files data_dir, and the mean size of what they read. Rates are
/// those of kept_up_img_per_s, of repetitions that are ok.
/// Throws ConfigError for renamings that no row has.
Comparison compare(const SweepResult& before, const SweepResult& after,
                   const CompareOptions& options);

/// 1: a row is slower; 7: not comparable, or a row is undecided; 0: anything else. Two sweeps that
/// share their ceilings alone are not comparable.
int exit_code_of(const Comparison& comparison);

/// From per cent, "1" or "2.5". Throws ConfigError.
double parse_margin(std::string_view text);
/// From names separated by commas. Throws ConfigError for those that are no keys.
std::vector<std::string> parse_allowed(std::string_view text);

/// "text", "markdown" or "json". Names are how the two are called. Throws ConfigError for other
/// formats.
void write_comparison(const Comparison& comparison, std::string_view before, std::string_view after,
                      std::string_view format, std::ostream& out);

}  // namespace penstock
