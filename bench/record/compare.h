// SPDX-License-Identifier: Apache-2.0
// Compares two sets of results and states how certain each change is. Only like is compared with
// like, because rates of different workloads say nothing about each other.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"

namespace penstock {

struct CompareOptions {
  double margin = 0.01;  ///< changes within it do not matter
  /// Keys of RunConfig that may differ although they belong to the workload.
  std::vector<std::string> allowed{};
  /// "KEY=A:B", several separated by ';'. A is a value from a row of `before`, B one from a row of
  /// `after`. Both may contain colons.
  std::string renamed{};
};

/// One configuration that both sets of results contain.
struct RowChange {
  std::string label;
  double before_img_per_s = 0, after_img_per_s = 0;  ///< geometric means; 0: none
  statistics::Estimate
      change_percent;  ///< of the rate, 100 (after / before - 1); see unpaired.h, paired.h
  statistics::Verdict verdict = statistics::Verdict::undecided;
  std::string reason;  ///< if undecided: why, and what would decide
};

struct Comparison {
  double margin = 0;
  bool paired = false;                   ///< runs of both sides alternated
  double confidence = 0.95;              ///< of the intervals
  std::string unit = "img";              ///< of the rates, in a second; of the rows after
  std::vector<std::string> obstacles;    ///< why the two cannot be compared; then there are no rows
  std::vector<std::string> settings;     ///< changes that are allowed: "prefetch: 3 -> 4"
  std::vector<std::string> environment;  ///< changes, in the same form
  std::vector<std::string> unmatched;    ///< configurations that only one of the two contains
  std::vector<RowChange> rows;
};

/// Rows match if the settings that tell rows apart are equal. If no row has the same length of
/// measurement, a row with another length matches, if there is only one on either side. If both
/// sides have a single row, these two match.
/// Obstacles are differences in the workload: model, device, precision, num_gpus, num_processes,
/// batch_size, image_size, classes, forward_only, eval and page_cache; the feeder and those of its
/// options that change data; data_dir, for feeders that read files; and the mean size of the images
/// read.
/// Rates are kept_up_img_per_s of repetitions that are ok. Throws ConfigError for renamings that
/// match no row.
Comparison compare(const SweepResult& before, const SweepResult& after,
                   const CompareOptions& options);

/// 1: a row is slower; 7: not comparable, or a row is undecided; 0: otherwise. Two sweeps that have
/// only their ceilings in common are not comparable.
int exit_code_of(const Comparison& comparison);

/// Parses per cent, "1" or "2.5". Throws ConfigError.
double parse_margin(std::string_view text);
/// Parses names separated by commas. Throws ConfigError for names that are no keys.
std::vector<std::string> parse_allowed(std::string_view text);

/// `format` is "text", "markdown" or "json". `before` and `after` are the names of the two results
/// in the output. Throws ConfigError for other formats.
void write_comparison(const Comparison& comparison, std::string_view before, std::string_view after,
                      std::string_view format, std::ostream& out);

}  // namespace penstock
