// SPDX-License-Identifier: Apache-2.0
// Predicts what would make a feeder keep up: more threads, more cores, deeper queues, more
// machines. Each recommendation has a rate that is predicted from measured times. Pure functions.
//
// A prediction replays measured times through the queue between feeder and device: the times per
// step of the unconsumed feeder on one side, of the ceiling on the other. A replay of the present
// configuration shows what the replay cannot explain (mostly interference). Predictions are scaled
// down by that share. They are never scaled up, because a trainer cannot take more than a feeder
// supplies. A recommendation that was tried shows whether its prediction came true.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"
#include "bench/statistics/scaling_law.h"

namespace penstock::isolate {

struct Isolation;
struct IsolatePlan;

/// A change of one setting, and the rate that the replay predicts for it.
struct Prediction {
  std::string change;  ///< "--feeder-threads 2"; empty: as measured
  double img_per_s = 0;
};

/// The least gain that makes a recommendation worth a sentence.
inline constexpr double kWorthwhile = 1.02;

/// What a setting is, and so where a user writes it.
enum class SettingKind : unsigned char {
  option,      ///< of the feeder: --fake-location FEEDER:NAME=VALUE
  flag,        ///< of the program: --NAME VALUE
  argument,    ///< of the function that makes the loader
  environment  ///< of the loader's process
};
std::string_view to_string(SettingKind kind);

struct SettingChange {
  SettingKind kind = SettingKind::option;
  std::string name, value;
  std::string now;  ///< the present value; empty: not known
};

struct Recommendation {
  std::string text;                       ///< what to do and what it would bring, in a sentence
  std::string change;                     ///< flags that can be tried on this machine; empty: none
  RunConfig config;                       ///< the configuration with these flags
  double img_per_s = 0;                   ///< predicted
  bool is_bound = false;                  ///< an upper limit, of a change that is not named
  std::vector<SettingChange> settings{};  ///< `change` as data
};
/// Can it be tried on this machine?
inline bool can_be_tried(const Recommendation& recommendation) {
  return !recommendation.change.empty();
}

struct Predictions {
  std::vector<statistics::ScalingPoint> supply_curve;  ///< threads and their unconsumed rates
  std::optional<statistics::ScalingLaw> law;
  std::optional<statistics::ThreadsNeeded> cores_per_device;
  std::vector<Prediction> depths;               ///< by queue replay, slots ascending
  std::vector<Recommendation> recommendations;  ///< best first, bounds last
  double unexplained_share = 0;  ///< 1 - measured / replayed, of the present coupled rate
};

/// Predicts from the measurement, cost, diagnosis and delivery of `found`, which has a cost. If the
/// feeder alone was not measured, nothing can be predicted.
Predictions predict(const Isolation& found, const IsolatePlan& plan);

/// The sentences of `recommendations`.
std::vector<std::string> texts_of(const std::vector<Recommendation>& recommendations);

/// A prediction holds if the achieved rate is this near.
inline constexpr double kToleratedPercent = 10;

struct Verification {
  std::string change;  ///< the flags that were changed
  double predicted_img_per_s = 0;
  statistics::Estimate achieved_img_per_s;
  double error_percent = 0;  ///< 100 (predicted / achieved - 1)
  bool agrees = false;       ///< within 10 % or the interval; never if the interval is wide
};

/// Compares runs `before` and `after` the recommendation, measured in the same blocks. The achieved
/// rate is the gain between them times `now_img_per_s`, the rate behind the prediction, so that
/// drift since then does not matter. Returns none if no block has both runs.
std::optional<Verification> verification_of(const Row& before, const Row& after,
                                            double now_img_per_s,
                                            const Recommendation& recommendation);

std::string sentence_of(const Verification& verification);

}  // namespace penstock::isolate
