// SPDX-License-Identifier: Apache-2.0
// Whether a prediction came true. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "bench/isolate/isolation.h"
#include "bench/isolate/predictions.h"

namespace penstock {

/// `before` and `after` the cure, measured in the same blocks. What was achieved is the gain
/// between the two times `now_img_per_s`, the rate from which the prediction was made, so that what
/// drifted meanwhile counts for nothing. None without a block that has both.
std::optional<Verification> verification_of(const Row& before, const Row& after,
                                            double now_img_per_s, const Cure& cure);

std::string sentence_of(const Verification& verification);

/// Why nothing was tried.
std::string why_unverified(const Isolation& found, bool interrupted);

}  // namespace penstock
