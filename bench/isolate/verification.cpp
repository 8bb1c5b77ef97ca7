// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/verification.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/isolate/cost.h"
#include "bench/report_text.h"
#include "bench/statistics/paired.h"

namespace penstock {
namespace {

constexpr double kToleratedPercent = 10;

/// Is what was achieved known well enough to speak for or against a prediction?
bool is_clear(const Verification& verification) {
  const Estimate& achieved = verification.achieved_img_per_s;
  return 100 * achieved.half_width() <= 2 * kToleratedPercent * achieved.value;
}

/// What is to be said of a prediction.
std::string_view outcome_of(const Verification& verification) {
  if (verification.agrees) return "holds";
  return is_clear(verification) ? "does not hold" : "can be neither confirmed nor refuted";
}

}  // namespace

std::optional<Verification> verification_of(const Row& before, const Row& after,
                                            double now_img_per_s, const Cure& cure) {
  const std::vector<BlockPair> blocks = pair_blocks(before, after);
  if (blocks.empty()) return std::nullopt;
  const Estimate ratio = paired_ratio(step_pairs(blocks));  // of times: after over before
  Verification result;
  result.change = cure.change;
  result.predicted_img_per_s = cure.img_per_s;
  result.achieved_img_per_s = rate_of(ratio, now_img_per_s / 1e3);
  const Estimate& achieved = result.achieved_img_per_s;
  result.error_percent = 100 * (cure.img_per_s / achieved.value - 1);
  const bool inside = achieved.low <= cure.img_per_s && cure.img_per_s <= achieved.high;
  result.agrees =
      is_clear(result) && (inside || std::abs(result.error_percent) <= kToleratedPercent);
  return result;
}

std::string sentence_of(const Verification& verification) {
  return fmt::format(
      "Tried {}: predicted {:.0f} img/s, achieved {}; the prediction {} ({:+.1f} %).",
      verification.change, verification.predicted_img_per_s,
      format_estimate(verification.achieved_img_per_s, 0), outcome_of(verification),
      verification.error_percent);
}

std::string why_unverified(const Isolation& found, bool interrupted) {
  if (interrupted) return "Nothing was tried: the measurement was interrupted.";
  if (found.cures.empty()) return "Nothing was tried: nothing is predicted to help.";
  return "Nothing was tried: what would help is not to be had on this machine.";
}

}  // namespace penstock
