// SPDX-License-Identifier: Apache-2.0
// Quantiles and tails of the distributions behind confidence intervals. Pure functions.
#pragma once

#include <cstddef>

namespace penstock::statistics {

/// P(T <= t) and its inverse, for Student's t with `freedom` > 0 degrees of freedom. `freedom` may
/// be fractional; infinity means the normal distribution. The relative error is below 1e-9 for
/// tails above 1e-6, which intervals use. The quantile of probability 0 or 1 is infinite.
double student_t_cdf(double t, double freedom);
double student_t_quantile(double probability, double freedom);

/// P(X <= successes) of `trials` independent trials with the same `probability`.
double binomial_cdf(std::size_t successes, std::size_t trials, double probability);

}  // namespace penstock::statistics
