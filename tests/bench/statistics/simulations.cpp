// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/statistics/simulations.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "bench/statistics/paired.h"
#include "bench/statistics/scaling_law.h"
#include "bench/statistics/series.h"

namespace penstock {
namespace {

constexpr double kLow = 90, kHigh = 99;  // allowed per cent for a nominal 95 %
constexpr std::size_t kResamples = 100;  // of scaling laws: a tenth of the default, for speed

bool covers(const statistics::Estimate& estimate, double truth) {
  return estimate.low <= truth && truth <= estimate.high;
}

Simulation mean_of_ar1(double phi, std::size_t steps) {
  return {"mean_of_series", fmt::format("AR(1), phi {}, {} steps", phi, steps), kLow, kHigh,
          [=](std::size_t k) {
            return covers(statistics::mean_of_series(make_ar1(steps, phi, 20, 2, Normal(1, k))),
                          20);
          }};
}

Simulation median_of_ar1(double phi, std::size_t steps) {
  return {"bootstrap_series", fmt::format("median, AR(1), phi {}, {} steps", phi, steps), kLow,
          kHigh, [=](std::size_t k) {
            const std::vector<double> series = make_ar1(steps, phi, 20, 2, Normal(2, k));
            const auto block =
                static_cast<std::size_t>(3 * statistics::autocorrelation_time(series)) + 1;
            const auto middle = [](std::span<const double> values) {
              return statistics::quantile(values, 0.5);
            };
            return covers(statistics::bootstrap_series(series, middle, block, k, 200), 20);
          }};
}

/// Lognormal times: the machine drifts by 10 % between pairs; each time also varies by `deviation`.
std::vector<statistics::Pair> make_pairs(std::size_t count, double ratio, double deviation,
                                         Normal normal) {
  std::vector<statistics::Pair> pairs(count);
  for (statistics::Pair& pair : pairs) {
    const double machine = 20 * std::exp(0.1 * normal.next());
    pair.a = machine * std::exp(deviation * normal.next());
    pair.b = machine * ratio * std::exp(deviation * normal.next());
  }
  return pairs;
}

Simulation ratio_of_blocks(std::size_t pairs, double deviation) {
  return {"paired_ratio", fmt::format("{} lognormal pairs, {} % noise", pairs, 100 * deviation),
          kLow, kHigh, [=](std::size_t k) {
            return covers(
                statistics::paired_ratio(make_pairs(pairs, 1.07, deviation, Normal(3, k))), 1.07);
          }};
}

/// Rates of a law: the machine drifts by 3 % between blocks; each rate also varies by `deviation`.
std::vector<statistics::ScalingPoint> make_points(const statistics::ScalingLaw& law,
                                                  const std::vector<double>& threads,
                                                  std::size_t blocks, double deviation,
                                                  Normal normal) {
  std::vector<statistics::ScalingPoint> points;
  for (const double n : threads) points.push_back({n, {}});
  for (std::size_t k = 0; k < blocks; ++k) {
    const double machine = std::exp(0.03 * normal.next());
    for (statistics::ScalingPoint& point : points) {
      const double noise = std::exp(deviation * normal.next());
      point.img_per_s.push_back(law.rate(point.threads) * machine * noise);
    }
  }
  return points;
}

struct Supply {
  statistics::ScalingLaw law;
  std::vector<double> threads;
  std::size_t blocks = 0;
  double needed = 0;  ///< threads that reach the demand
};
std::string describe(const Supply& supply) {
  return fmt::format("sigma {}, kappa {}, threads {}, {} blocks, at {}", supply.law.sigma,
                     supply.law.kappa, fmt::join(supply.threads, " "), supply.blocks,
                     supply.needed);
}

Simulation threads_for(const Supply& supply) {
  return {"threads_needed", describe(supply), kLow, kHigh, [=](std::size_t k) {
            const auto points =
                make_points(supply.law, supply.threads, supply.blocks, 0.02, Normal(4, k));
            const double demand = supply.law.rate(supply.needed);
            const statistics::ThreadsNeeded needed =
                statistics::threads_needed(points, demand, k, kResamples);
            return needed.reachable ? covers(needed.threads, supply.needed)
                                    : needed.peak_img_per_s.high >= demand;
          }};
}

Simulation rate_of(const Supply& supply) {
  return {"rate_at", describe(supply), kLow, kHigh, [=](std::size_t k) {
            const auto points =
                make_points(supply.law, supply.threads, supply.blocks, 0.02, Normal(5, k));
            return covers(statistics::rate_at(points, supply.needed, k, kResamples),
                          supply.law.rate(supply.needed));
          }};
}

Simulation peak_of(const Supply& supply) {
  const double peak = supply.law.rate(supply.law.peak_threads().value());
  return {"threads_needed, peak", describe(supply), kLow, kHigh, [=](std::size_t k) {
            const auto points =
                make_points(supply.law, supply.threads, supply.blocks, 0.02, Normal(6, k));
            return covers(
                statistics::threads_needed(points, 3 * peak, k, kResamples).peak_img_per_s, peak);
          }};
}

Simulation verdicts_of_equals(std::size_t pairs, double deviation, double margin) {
  return {"judge",
          fmt::format("A against A, {} pairs, {} % noise, margin {} %", pairs, 100 * deviation,
                      100 * margin),
          0, 9, [=](std::size_t k) {
            const statistics::Verdict verdict =
                statistics::judge(make_pairs(pairs, 1, deviation, Normal(7, k)), margin);
            return verdict == statistics::Verdict::slower || verdict == statistics::Verdict::faster;
          }};
}

/// Adds blocks until the interval is within 1 %, from 5 to 30 blocks.
Simulation verdicts_after_looking(double deviation) {
  return {
      "judge",
      fmt::format("A against A, until within 1 % or 30 pairs, {} % noise, margin 0 %",
                  100 * deviation),
      0, 9, [=](std::size_t k) {
        const std::vector<statistics::Pair> all = make_pairs(30, 1, deviation, Normal(10, k));
        std::size_t count = 5;
        while (count < all.size() && statistics::more_pairs(std::span(all).first(count), 0.01) > 0)
          ++count;
        const statistics::Verdict verdict = statistics::judge(std::span(all).first(count), 0);
        return verdict == statistics::Verdict::slower || verdict == statistics::Verdict::faster;
      }};
}

Simulation drift_of_noise(double phi, std::size_t steps) {
  return {"find_warm_up, drifting", fmt::format("stationary AR(1), phi {}, {} steps", phi, steps),
          0, 10, [=](std::size_t k) {
            return statistics::find_warm_up(make_ar1(steps, phi, 20, 2, Normal(8, k)), 20).drifting;
          }};
}

Simulation verdicts_of_slower(std::size_t pairs) {
  // Two pairs of either sign have the standard deviation of the simulated pairs.
  constexpr double kDeviation = 0.02;
  const double spread = std::exp(kDeviation * std::numbers::sqrt2 * std::sqrt(0.75));
  const std::vector<statistics::Pair> known{{1, spread}, {spread, 1}, {1, spread}, {spread, 1}};
  const double effect = statistics::detectable_effect(known, pairs);
  return {"detectable_effect", fmt::format("{} pairs, slower by {:.2f} %", pairs, 100 * effect), 74,
          86, [=](std::size_t k) {
            return statistics::judge(make_pairs(pairs, 1 + effect, kDeviation, Normal(9, k)), 0) ==
                   statistics::Verdict::slower;
          }};
}

}  // namespace

double Normal::next() {
  const double radius = std::sqrt(-2 * std::log(1 - random_.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random_.uniform());
}

std::vector<double> make_ar1(std::size_t steps, double phi, double mean, double deviation,
                             Normal normal) {
  std::vector<double> series;
  double state = deviation * normal.next();
  for (std::size_t k = 0; k < steps; ++k) {
    series.push_back(mean + state);
    state = phi * state + deviation * std::sqrt(1 - phi * phi) * normal.next();
  }
  return series;
}

std::vector<Simulation> coverage_simulations() {
  const Supply curved{{100, 0.03, 0.002}, {1, 2, 4, 8}, 3, 6};
  const Supply many{{100, 0.03, 0.002}, {1, 2, 4, 8}, 8, 12};
  const Supply straight{{100, 0.05, 0}, {1, 2}, 5, 5};
  const Supply bounded{{100, 0.05, 0}, {1, 2, 3, 4}, 5, 10};
  const Supply falling{{100, 0.1, 0.02}, {1, 2, 4, 8}, 5, 3};
  return {mean_of_ar1(0, 400),        mean_of_ar1(0.5, 400),   mean_of_ar1(0.9, 400),
          mean_of_ar1(0.9, 1000),     median_of_ar1(0.5, 300), ratio_of_blocks(3, 0.02),
          ratio_of_blocks(10, 0.005), threads_for(curved),     threads_for(many),
          threads_for(straight),      threads_for(bounded),    rate_of(curved),
          rate_of(bounded),           peak_of(falling)};
}

std::vector<Simulation> false_alarm_simulations() {
  return {verdicts_of_equals(3, 0.02, 0),   verdicts_of_equals(5, 0.02, 0.01),
          verdicts_of_equals(10, 0.005, 0), verdicts_after_looking(0.01),
          drift_of_noise(0, 300),           drift_of_noise(0.5, 300),
          drift_of_noise(0.9, 300)};
}

std::vector<Simulation> power_simulations() {
  return {verdicts_of_slower(5), verdicts_of_slower(10)};
}

double percent_of_hits(const Simulation& simulation, std::size_t count) {
  std::size_t hits = 0;
  for (std::size_t k = 0; k < count; ++k) hits += simulation.hit(k) ? 1 : 0;
  return 100 * static_cast<double>(hits) / static_cast<double>(count);
}

}  // namespace penstock
