#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints scipy_values.h: SciPy's and NumPy's results for the same numbers as in tests of bench/statistics.

Usage: scipy_values.py | clang-format-14 --assume-filename=scipy_values.h > scipy_values.h
Needs SciPy 1.10 or newer and NumPy: pip install scipy.
The first lines of the committed file name the versions that made it; other versions differ in the last digits.
"""
import numpy as np
import scipy
from scipy import optimize, stats


def text(value):
    if isinstance(value, (list, tuple, np.ndarray)):
        return "{" + ", ".join(text(item) for item in value) + "}"
    return repr(int(value)) if isinstance(value, (int, np.integer)) else repr(float(value))


def rows(kind, name, values):
    print(f"inline const std::vector<{kind}> {name}{{")
    for value in values:
        print(f"    {text(value)},")
    print("};")


def numbers(name, values):
    rows("double", name, values)


def autocorrelation_time(series):
    centred = series - series.mean()
    covariance = np.correlate(centred, centred, "full")[len(series) - 1:]
    total = 0.0
    for lag in range(0, len(series) // 2 - 1, 2):
        pair = covariance[lag] + covariance[lag + 1]
        if pair <= 0:
            break
        total += pair
    return max(1.0, float(2 * total / covariance[0] - 1))


def scaling_fit(points, columns=3):
    """Non-negative least squares of n / X(n) in 1/lambda, sigma/lambda, kappa/lambda, relative."""
    seconds = [(n, np.mean([n / rate for rate in rates]), len(rates)) for n, rates in points]
    matrix = np.array([[1 / y, (n - 1) / y, n * (n - 1) / y] for n, y, _ in seconds])[:, :columns]
    weights = np.sqrt([count for _, _, count in seconds])
    solution, _ = optimize.nnls(matrix * weights[:, None], weights)
    solution = np.append(solution, np.zeros(3 - columns))
    return 1 / solution[0], solution[1] / solution[0], solution[2] / solution[0]


def scaling_case(random, law, threads, blocks, noise):
    lam, sigma, kappa = law
    points = []
    for n in threads:
        rate = lam * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))
        points.append((n, [round(rate * (1 + noise * random.standard_normal()), 3) for _ in range(blocks)]))
    return points, scaling_fit(points)


def exact_effect(pairs):
    """The ratio of effect to standard error that a two-sided t test at 5 % detects as positive with 80 % power."""
    limit = stats.t.ppf(0.975, pairs - 1)
    return optimize.brentq(lambda d: stats.nct.sf(limit, pairs - 1, d) - 0.8, 0.1, 20)


def main():
    random = np.random.default_rng(20240607)
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Made by scipy_values.py with SciPy {scipy.__version__} and NumPy {np.__version__}. Do not edit.")
    print("#pragma once\n\n#include <cstddef>\n#include <vector>\n\nnamespace penstock::scipy {\n")

    print("struct StudentT {\n  double freedom, probability, quantile;\n};")
    rows("StudentT", "kStudentT",
         [(f, p, stats.t.ppf(p, f)) for f in (0.7, 1.0, 2.0, 3.5, 9.0, 29.0, 120.0, 5000.0, 1e6)
          for p in (1e-6, 0.0005, 0.025, 0.3, 0.8, 0.95, 0.975, 0.9995)])

    print("\nstruct Binomial {\n  std::size_t successes, trials;\n  double probability, cdf;\n};")
    rows("Binomial", "kBinomial",
         [(k, n, p, stats.binom.cdf(k, n, p)) for k, n, p in
          ((0, 1, 0.3), (3, 10, 0.5), (18, 200, 0.05), (10, 200, 0.05), (180, 200, 0.95),
           (40, 50, 0.999), (500, 10000, 0.06), (0, 40, 1e-9))])

    print()
    sample = np.round(random.lognormal(3, 0.4, 23), 4)
    numbers("kSample", sample)
    print("struct Quantile {\n  double share, value;\n};")
    rows("Quantile", "kQuantiles", [(s, np.quantile(sample, s)) for s in (0, 0.05, 0.25, 0.5, 0.9, 0.99, 1)])

    print()
    a = np.round(random.lognormal(3, 0.3, 7), 4)
    b = np.round(a * random.lognormal(0.05, 0.04, 7), 4)
    numbers("kBefore", a)
    numbers("kAfter", b)
    print("/// Confidence, then value, low and high.")
    print("struct Interval {\n  double confidence, value, low, high;\n};")
    logs = np.log(b / a)
    ratio, mean = [], []
    for confidence in (0.9, 0.95, 0.99):
        low, high = stats.ttest_1samp(logs, 0).confidence_interval(confidence)
        ratio.append((confidence, np.exp(logs.mean()), np.exp(low), np.exp(high)))
        low, high = stats.ttest_1samp(a, 0).confidence_interval(confidence)
        mean.append((confidence, a.mean(), low, high))
    rows("Interval", "kRatio", ratio)
    rows("Interval", "kMean", mean)

    print("\n/// Effect over its standard error, by the noncentral t distribution.")
    print("struct Effect {\n  std::size_t pairs;\n  double effect;\n};")
    rows("Effect", "kEffects", [(n, exact_effect(n)) for n in (3, 5, 10, 30)])

    print()
    series = np.empty(60)
    series[0] = 20
    for k in range(1, len(series)):
        series[k] = 6 + 0.7 * series[k - 1] + random.standard_normal()
    series = np.round(series, 4)
    numbers("kSeries", series)
    print(f"inline constexpr double kAutocorrelationTime = {autocorrelation_time(series)!r};")

    print("\n// Theil's slope of the means of threes of a series that rises, from its 28th value on: what MSER-5\n"
          "// leaves, less what fills no three. Neighbours alternate.")
    rising = np.round([20 + 0.02 * k + (0.3 if k % 2 else -0.3) + 0.02 * random.standard_normal()
                       for k in range(60)], 4)
    numbers("kRising", rising)
    slope = stats.theilslopes(rising[27:].reshape(11, 3).mean(axis=1))
    print(f"inline constexpr double kSlopePerThree = {float(slope[0])!r};")

    print("\nstruct Point {\n  double threads;\n  std::vector<double> img_per_s;\n};")
    print("struct Fit {\n  std::vector<Point> points;\n  double lambda, sigma, kappa;\n};")
    cases = [scaling_case(random, (100, 0.03, 0.002), (1, 2, 4, 8, 16), 3, 0.01),
             scaling_case(random, (250, 0.1, 0), (1, 2, 3, 4), 5, 0.02),
             scaling_case(random, (80, 0, 0.01), (1, 2, 4, 8), 3, 0.02),
             scaling_case(random, (500, 0, 0), (1, 2, 3, 4, 6), 3, 0.01)]
    rows("Fit", "kFits", [(points, *law) for points, law in cases])
    print("\n}  // namespace penstock::scipy")


if __name__ == "__main__":
    main()
