// SPDX-License-Identifier: Apache-2.0
// Compares A with A: what the statistics say on this machine if nothing differs. It shows how often
// they report a false difference, and how small a difference they could detect. Pure functions.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "bench/isolate/noise.h"
#include "bench/record/sweep_result.h"
#include "bench/statistics/paired.h"

namespace penstock::isolate {

/// One configuration, measured twice in every block.
struct SelftestCase {
  std::string name;  ///< "an emulated device of 1 ms a step"
  RunConfig config;
  double expected_ms = 0;  ///< of a step; 0: not known
};
/// Short cases: one that keeps time and one that computes.
std::vector<SelftestCase> selftest_cases();

/// The result of one case. A group has kGroup pairs, as many as the blocks behind a verdict of
/// `penstock isolate`.
struct SelftestFinding {
  static constexpr std::size_t kGroup = 5;
  static constexpr std::size_t kDrawn = 200;

  std::string name;
  std::size_t pairs = 0;
  statistics::Estimate ratio;  ///< B over A, over all pairs
  statistics::Verdict verdict =
      statistics::Verdict::undecided;  ///< over all pairs; slower and faster are false alarms
  /// Consecutive groups in the order of measurement. They show drift and periodic effects.
  std::size_t groups = 0, alarms = 0;  ///< alarms: verdicts slower or faster
  std::size_t without_margin = 0;      ///< number of `groups` whose 95 % interval excludes 1
  /// The same for kDrawn groups drawn from all pairs, each pair swapped at random.
  std::size_t drawn_alarms = 0, drawn_without_margin = 0;
  double detectable_percent = 0;  ///< smallest effect that kGroup blocks would detect
  double expected_ms = 0, measured_ms = 0;
};

struct Selftest {
  SweepResult sweep;  ///< rows 2k and 2k + 1 are the two runs of case k
  std::vector<SelftestFinding> findings;
  std::vector<BlockNoise> noise;
  double margin = 0.01;
  std::vector<std::string> warnings;
};

/// Fills in findings and doubts from the sweep. Cases with too few pairs get no finding.
void judge_selftest(Selftest& test, const std::vector<SelftestCase>& cases);

/// Are there more false alarms than a correct test would produce once in a thousand times?
bool is_alarming(const SelftestFinding& finding);

void write_selftest_text(const Selftest& test, std::ostream& out);
nlohmann::ordered_json to_json(const Selftest& test);

}  // namespace penstock::isolate
