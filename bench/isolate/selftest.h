// SPDX-License-Identifier: Apache-2.0
// A against A: what the statistics say when nothing differs, on this machine as it is now. How
// often they see a difference that is not there, and how small one they could see. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "bench/isolate/isolation.h"
#include "bench/statistics/paired.h"

namespace penstock {

/// One configuration, measured twice in every block.
struct SelftestCase {
  std::string name;  ///< "an emulated device of 1 ms a step"
  RunConfig config;
  double expected_ms = 0;  ///< of a step; 0: nobody knows
};
/// Cheap ones: one that keeps time and one that works.
std::vector<SelftestCase> selftest_cases();

/// What was seen in one case. A group has kGroup pairs, as many blocks as a verdict of `penstock
/// isolate` rests on.
struct SelftestFinding {
  static constexpr std::size_t kGroup = 5;
  static constexpr std::size_t kDrawn = 200;

  std::string name;
  std::size_t pairs = 0;
  Estimate ratio;                        ///< B over A, of all pairs
  Verdict verdict = Verdict::undecided;  ///< of all pairs; slower and faster are false
  /// One behind the other, as they were measured: what drifts or repeats shows here.
  std::size_t groups = 0, alarms = 0;  ///< alarms: called slower or faster
  std::size_t without_margin = 0;      ///< of `groups`: the 95 % interval excludes 1
  /// Of kDrawn groups drawn from all pairs, each pair turned round by chance.
  std::size_t drawn_alarms = 0, drawn_without_margin = 0;
  double detectable_percent = 0;  ///< smallest effect that kGroup blocks would see
  double expected_ms = 0, measured_ms = 0;
};

struct Selftest {
  SweepResult sweep;  ///< rows 2k and 2k + 1 are the two of case k
  std::vector<SelftestFinding> findings;
  std::vector<BlockNoise> noise;
  double margin = 0.01;
  std::vector<std::string> doubts;
};

/// Fills in findings and doubts from the sweep. Cases with too few pairs have none.
void judge_selftest(Selftest& test, const std::vector<SelftestCase>& cases);

/// Are there so many false alarms that a right test would have as many once in a thousand times?
bool is_alarming(const SelftestFinding& finding);

void write_selftest_text(const Selftest& test, std::ostream& out);
nlohmann::ordered_json to_json(const Selftest& test);

}  // namespace penstock
