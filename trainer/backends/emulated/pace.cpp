// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/emulated/pace.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock::emulated {
namespace {

struct DistributionText {
  std::string_view name;
  Distribution distribution;
  double largest_cv;
};

/// The largest cv of each distribution. uniform reaches 0 at 1 / sqrt(3); gamma equals exponential
/// at 1; normal beyond 0.3 would be cut so often that its deviation is wrong.
constexpr DistributionText kDistributions[] = {
    {"constant", Distribution::constant, 0}, {"uniform", Distribution::uniform, 0.577},
    {"normal", Distribution::normal, 0.3},   {"lognormal", Distribution::lognormal, 1},
    {"gamma", Distribution::gamma, 1},       {"exponential", Distribution::exponential, 1},
};

/// In (0, 1].
double positive_uniform(Random& random) { return 1 - random.uniform(); }

double standard_normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(positive_uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

double normal_factor(Random& random, double cv) {
  double factor = 0;
  while (!(factor > 0 && factor < 2)) factor = 1 + cv * standard_normal(random);
  return factor;
}

double gamma_factor(Random& random, double cv) {
  const double scale = cv * cv, d = 1 / scale - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double z = standard_normal(random);
    const double root = 1 + c * z, v = root * root * root;
    if (v <= 0) continue;
    const double u = positive_uniform(random);
    if (std::log(u) < 0.5 * z * z + d - d * v + d * std::log(v)) return d * v * scale;
  }
}

}  // namespace

double Jitter::factor(Random random) const {
  switch (distribution) {
    case Distribution::constant:
      return 1;
    case Distribution::uniform: {
      const double reach = cv * std::numbers::sqrt3;
      return random.uniform(1 - reach, 1 + reach);
    }
    case Distribution::normal:
      return normal_factor(random, cv);
    case Distribution::lognormal: {
      const double variance = std::log1p(cv * cv);
      return std::exp(std::sqrt(variance) * standard_normal(random) - variance / 2);
    }
    case Distribution::gamma:
      return gamma_factor(random, cv);
    case Distribution::exponential:
      break;
  }
  return -std::log(positive_uniform(random));
}

Jitter parse_jitter(const std::string& distribution, double cv, bool cv_given) {
  std::vector<std::string> names;
  for (const DistributionText& known : kDistributions) {
    names.emplace_back(known.name);
    if (known.name != canonical_name(distribution)) continue;
    if (known.distribution == Distribution::constant && cv_given) {
      throw ConfigError(
          fmt::format("emulated:cv is {}, but steps are constant; add a distribution=", cv));
    }
    if (known.distribution == Distribution::constant) return {};
    if (known.distribution == Distribution::exponential && !cv_given) cv = 1;
    const bool possible = known.distribution == Distribution::exponential
                              ? cv == 1
                              : cv > 0 && cv <= known.largest_cv;
    if (possible) return {known.distribution, cv};
    throw ConfigError(fmt::format(
        "emulated:cv is {}, which {} step times cannot have; expected {} {}: standard deviation / "
        "mean",
        cv, known.name, known.distribution == Distribution::exponential ? "1, not" : "0 < cv <=",
        known.largest_cv));
  }
  throw ConfigError("emulated:distribution is '" + distribution + "'; expected one of " +
                    join(names));
}

namespace {

Nanoseconds busy(double seconds) {
  return std::chrono::round<Nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

Nanoseconds Pace::step_time(std::uint64_t seed, std::uint64_t rank, std::uint64_t step,
                            std::int32_t images) const {
  const double each = recorded.empty() ? seconds_per_image * jitter.factor(Random(seed, rank, step))
                                       : recorded[step % recorded.size()];
  return busy(each * images) + exchange;
}

Nanoseconds Pace::mean_step_time(std::int32_t images) const {
  return busy(seconds_per_image * images) + exchange;
}

}  // namespace penstock::emulated
