// SPDX-License-Identifier: Apache-2.0
// Quantiles and tails of the distributions that intervals are made of. Pure functions.
#pragma once

#include <cstddef>

namespace penstock {

/// P(T <= t) and its inverse, for Student's t with `freedom` > 0 degrees of freedom (not
/// necessarily whole; infinity: the normal distribution). Relative error below 1e-9 in the range
/// that intervals use (tails above 1e-6). A probability of 0 or 1 is infinitely far out.
double student_t_cdf(double t, double freedom);
double student_t_quantile(double probability, double freedom);

/// P(X <= successes) for `trials` independent ones of the same `probability`.
double binomial_cdf(std::size_t successes, std::size_t trials, double probability);

}  // namespace penstock
