// SPDX-License-Identifier: Apache-2.0
#include "bench/ab/turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <utility>
#include <vector>

#include "bench/run/processes/child_process.h"
#include "dataflow/error.h"

namespace penstock::ab {
namespace {

using statistics::Pair;
using statistics::Verdict;

constexpr std::size_t kLeastPairs = 3;
/// With 95 %, one of 20 comparisons of equal versions would say that something changed.
constexpr double kConfidence = 0.98;
/// Fewer pairs may look narrow by chance.
constexpr std::size_t kTrusted = 5;
constexpr double kLongestTime = 24 * 3600;

/// The last match of an expression.
std::optional<std::smatch> last_match(const std::string& text, const std::regex& expression) {
  std::optional<std::smatch> found;
  for (std::sregex_iterator at(text.begin(), text.end(), expression); at != std::sregex_iterator();
       ++at) {
    found = *at;
  }
  return found;
}

std::optional<double> positive_number(const std::string& text) {
  try {
    std::size_t end = 0;
    const double value = std::stod(text, &end);
    if (end == text.size() && std::isfinite(value) && value > 0) return value;
  } catch (const std::exception&) {  // no number, or one out of range
  }
  return std::nullopt;
}

std::regex expression_of(const std::string& text) {
  try {
    std::regex expression(text);
    if (expression.mark_count() == 1) return expression;
  } catch (const std::regex_error&) {
    throw ConfigError("--metric is '{}'; expected time, auto or a regular expression", text);
  }
  throw ConfigError(
      "--metric is '{}'; expected one group in round brackets, such as 'rate: ([0-9.]+)'", text);
}

std::optional<Speed> rate_in(const std::string& output) {
  static const std::regex kTotal(R"(total ([A-Za-z_]+)/sec: ([0-9.eE+]+))");
  const std::optional<std::smatch> match = last_match(output, kTotal);
  if (!match) return std::nullopt;
  const std::optional<double> value = positive_number((*match)[2]);
  if (!value) return std::nullopt;
  const std::string unit = (*match)[1];
  return Speed{*value, unit == "images" ? "img" : unit};
}

/// Runs commands and reads their speed.
class Turns {
 public:
  Turns(const TurnsPlan& plan, const std::stop_token& stop) : plan_(plan), stop_(stop) {}

  /// Empty: a stop was requested.
  std::optional<Speed> run(const Version& version) {
    std::vector<std::string> words{"env", "-C", version.folder.native()};
    words.insert(words.end(), version.command.begin(), version.command.end());
    const Time begin = clock_.now();
    ChildProcess child({.arguments = std::move(words), .environment = version.environment});
    const ChildExit& exit = child.wait(stop_);
    if (stop_.stop_requested()) return std::nullopt;
    if (exit.code != 0 || exit.signal != 0) {
      throw DataError("the command of {} {}", version.name, exit.describe());
    }
    const std::optional<Speed> speed =
        speed_of(exit.output, to_seconds(clock_.now() - begin), metric_);
    if (!speed) {
      throw DataError(
          "the command of {} printed nothing that --metric '{}' finds; the end of its output: {}",
          version.name, metric_.text, end_of(exit.output));
    }
    if (metric_.text == "auto") metric_.text = speed->unit == "runs" ? "time" : "auto";
    if (unit_.empty()) unit_ = speed->unit;
    if (unit_ != speed->unit) {
      throw DataError("the command of {} counts {}, the one before it {}", version.name,
                      speed->unit, unit_);
    }
    return speed;
  }

  /// Empty: a stop was requested.
  std::optional<Pair> pair(bool head_first) {
    std::optional<Speed> head, base;
    if (head_first && !(head = run(plan_.head))) return std::nullopt;
    if (!(base = run(plan_.base))) return std::nullopt;
    if (!head_first && !(head = run(plan_.head))) return std::nullopt;
    return Pair{1 / base->value, 1 / head->value};
  }
  const std::string& unit() const noexcept { return unit_; }
  Time now() const { return clock_.now(); }

 private:
  static std::string end_of(const std::string& output) {
    constexpr std::size_t kShown = 300;
    return output.size() <= kShown ? output : "..." + output.substr(output.size() - kShown);
  }

  const TurnsPlan& plan_;
  const std::stop_token stop_;
  SteadyClock clock_;
  Metric metric_ = plan_.metric;
  std::string unit_;
};

}  // namespace

std::optional<Speed> speed_of(std::string_view output, double seconds, const Metric& metric) {
  const std::string text(output);
  if (metric.text == "auto") {
    if (auto rate = rate_in(text)) return rate;
  }
  if (metric.text == "auto" || metric.text == "time") {
    return Speed{1 / std::clamp(seconds, 1e-6, kLongestTime), "runs"};
  }
  const std::optional<std::smatch> match = last_match(text, expression_of(metric.text));
  if (!match) return std::nullopt;
  const std::optional<double> value = positive_number((*match)[1]);
  if (!value) return std::nullopt;
  return Speed{metric.lower_is_better ? 1 / *value : *value, "units"};
}

Comparison comparison_of(const TurnsPlan& plan, std::span<const Pair> pairs, std::string unit) {
  Comparison comparison;
  comparison.margin = plan.margin;
  comparison.paired = true;
  comparison.confidence = kConfidence;
  comparison.unit = std::move(unit);
  RowChange row;
  row.label = plan.label;
  const auto speed = [&](double Pair::*side) {
    double sum = 0;
    for (const Pair& pair : pairs) sum -= std::log(pair.*side);
    return pairs.empty() ? 0 : std::exp(sum / static_cast<double>(pairs.size()));
  };
  row.before_img_per_s = speed(&Pair::a);
  row.after_img_per_s = speed(&Pair::b);
  std::vector<Pair> speeds;  // of which the head's is larger if it is faster
  for (const Pair& pair : pairs) speeds.push_back({pair.b, pair.a});
  const statistics::Estimate ratio = statistics::paired_ratio(speeds, kConfidence);
  row.change_percent = {100 * (ratio.value - 1), 100 * (ratio.low - 1), 100 * (ratio.high - 1),
                        ratio.samples};
  row.verdict = statistics::judge(pairs, plan.margin, kConfidence);
  if (row.verdict == Verdict::undecided) {
    row.reason =
        pairs.size() < kLeastPairs
            ? fmt::format("{} pairs; at least {} are needed", pairs.size(), kLeastPairs)
            : fmt::format("about {} more pairs would narrow it to the margin",
                          std::max<std::size_t>(1, statistics::more_pairs(pairs, plan.margin / 2)));
  }
  comparison.rows.push_back(std::move(row));
  return comparison;
}

bool suffice(std::span<const Pair> pairs, double margin) {
  return pairs.size() >= kTrusted && statistics::more_pairs(pairs, margin / 2) == 0;
}

Comparison compare_in_turns(const TurnsPlan& plan, const std::stop_token& stop,
                            const std::function<void(const std::string&)>& told) {
  Turns turns(plan, stop);
  std::vector<Pair> pairs;
  const Time begin = turns.now();
  told("one run of each that does not count");
  if (!turns.pair(false)) return comparison_of(plan, pairs, turns.unit());
  Nanoseconds longest = turns.now() - begin;
  std::string failure;
  while (plan.pairs == 0 || pairs.size() < plan.pairs) {
    const Time now = turns.now();
    if (plan.pairs == 0 && pairs.size() >= kLeastPairs && now - begin + longest > plan.budget) {
      break;
    }
    try {
      const std::optional<Pair> pair = turns.pair(pairs.size() % 2 == 1);
      if (!pair) break;
      pairs.push_back(*pair);
    } catch (const DataError& error) {
      if (pairs.empty()) throw;
      failure = error.what();
      break;
    }
    longest = std::max(longest, turns.now() - now);
    const auto spent = std::chrono::round<std::chrono::seconds>(turns.now() - begin);
    told(fmt::format("pair {}: base {:.4g}, head {:.4g} {}/s ({:+.1f} %); {} s so far",
                     pairs.size(), 1 / pairs.back().a, 1 / pairs.back().b, turns.unit(),
                     100 * (pairs.back().a / pairs.back().b - 1), spent.count()));
    if (plan.pairs == 0 && suffice(pairs, plan.margin)) break;
  }
  Comparison comparison = comparison_of(plan, pairs, turns.unit());
  if (!failure.empty()) {
    comparison.rows.front().verdict = Verdict::undecided;
    comparison.rows.front().reason = failure;
  }
  return comparison;
}

std::string verdict_of(const TurnsPlan& plan, const Comparison& comparison) {
  const RowChange& row = comparison.rows.front();
  const statistics::Estimate& change = row.change_percent;
  const std::string head = plan.head.name, base = plan.base.name;
  const auto between = [&](double sign) {
    const double one = sign * change.low, other = sign * change.high;
    return fmt::format("{:.1f} to {:.1f} %", std::min(one, other), std::max(one, other));
  };
  switch (row.verdict) {
    case Verdict::slower:
      return fmt::format("{} is {:.1f} % slower than {} ({}): a regression.", head, -change.value,
                         base, between(-1));
    case Verdict::faster:
      return fmt::format("{} is {:.1f} % faster than {} ({}): an improvement.", head, change.value,
                         base, between(1));
    case Verdict::equal:
      return fmt::format("{} is as fast as {}: the change of {:+.1f} % ({}) is within {:g} %.",
                         head, base, change.value, between(1), 100 * plan.margin);
    case Verdict::undecided:
      break;
  }
  return fmt::format("Undecided whether {} is slower than {}: {}.", head, base, row.reason);
}

}  // namespace penstock::ab
