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

/// What was seen in one case. Rates of alarms are of groups of kGroup pairs, as many as a verdict
/// of `penstock isolate` rests on, drawn from all pairs without replacement, each turned round by
/// chance.
struct SelftestFinding {
  static constexpr std::size_t kGroup = 5;
  static constexpr std::size_t kGroups = 200;

  std::string name;
  std::size_t pairs = 0;
  Estimate ratio;  ///< B over A, of all pairs
  Verdict verdict =
      Verdict::undecided;          ///< of all pairs; anything but equal and undecided is false
  std::size_t alarms = 0;          ///< groups of kGroups that were called slower or faster
  std::size_t without_margin = 0;  ///< groups whose 95 % interval excludes 1
  double detectable_percent = 0;   ///< smallest effect that kGroup blocks would see
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
