// SPDX-License-Identifier: Apache-2.0
#include "bench/record/sweep_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "bench/config/comparable.h"

namespace penstock {
namespace {

/// If a row is undecided, the number of missing rounds is for an interval of this half-width.
constexpr double kCostHalfWidth = 0.005;

std::int64_t count_of(const Row& row, Status status) {
  return std::ranges::count(row.repetitions, status,
                            [](const Repetition& each) { return each.result.status; });
}

/// "2 of 3 repetitions: the reason of the first of them".
std::string reason_of(const Row& row, Status status) {
  const std::int64_t count = count_of(row, status);
  for (const Repetition& repetition : row.repetitions) {
    if (repetition.result.status != status) continue;
    const auto all = static_cast<std::int64_t>(row.repetitions.size());
    if (count == all) return repetition.result.reason;
    return fmt::format("{} of {} repetitions {}: {}", count, all, to_string(status),
                       repetition.result.reason);
  }
  return {};
}

void summarise_status(Row& row) {
  row.reason.clear();
  const auto is = [&](Status status, std::string reason) {
    row.status = status;
    row.reason = std::move(reason);
  };
  if (!row.unavailable.empty()) return is(Status::skipped, row.unavailable);
  if (row.repetitions.empty()) return is(Status::skipped, "not measured");
  const bool draining = count_of(row, Status::draining) > 0;
  const bool usable = draining || count_of(row, Status::ok) > 0;
  const std::string failures = reason_of(row, Status::failed);
  if (!usable) {
    for (const Status status : {Status::failed, Status::partial, Status::skipped}) {
      if (count_of(row, status) > 0) return is(status, reason_of(row, status));
    }
  }
  const std::string cuts = failures.empty() ? reason_of(row, Status::partial) : failures;
  if (draining) {
    const std::string why = reason_of(row, Status::draining);
    return is(Status::draining, cuts.empty() ? why : why + "; " + cuts);
  }
  if (!cuts.empty()) return is(Status::partial, cuts);
  is(Status::ok, "");
}

/// The repetitions that the figures come from: all those with the best status that occurs.
std::vector<const RunResult*> figures_of(const Row& row) {
  for (const Status status : {Status::ok, Status::draining, Status::partial, Status::failed}) {
    std::vector<const RunResult*> results;
    for (const Repetition& repetition : row.repetitions) {
      const RunResult& result = repetition.result;
      if (result.status == status && result.img_per_s > 0) results.push_back(&result);
    }
    if (!results.empty()) return results;
  }
  return {};
}

/// `text` with each number, decimals included, replaced by one '#'.
std::string without_numbers(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (kDigits.find(text[i]) == std::string_view::npos) {
      plain += text[i];
      continue;
    }
    plain += '#';
    i = std::min(text.find_first_not_of("0123456789.", i), text.size()) - 1;
  }
  return plain;
}

/// The notes of all rounds. What a later round repeats with other numbers is left out: each result
/// keeps its notes.
std::vector<std::string> notes_of_rounds(const std::vector<Repetition>& repetitions) {
  std::vector<std::string> notes, said;
  for (const Repetition& repetition : repetitions) {
    const std::size_t before = said.size();
    for (const std::string& note : repetition.result.notes) {
      const auto earlier = said.begin() + static_cast<std::ptrdiff_t>(before);
      if (std::ranges::find(notes, note) != notes.end()) continue;
      if (std::find(said.begin(), earlier, without_numbers(note)) != earlier) continue;
      notes.push_back(note);
      said.push_back(without_numbers(note));
    }
  }
  return notes;
}

void summarise_rates(Row& row) {
  row.img_per_s.reset();
  row.sustained_img_per_s.reset();
  row.notes = notes_of_rounds(row.repetitions);
  const std::vector<const RunResult*> results = figures_of(row);
  if (results.empty()) return;
  std::vector<double> rates, sustained;
  for (const RunResult* result : results) {
    rates.push_back(result->img_per_s);
    sustained.push_back(result->sustained_img_per_s);
  }
  row.img_per_s = spread(rates);
  row.sustained_img_per_s = spread(sustained);
}

bool has_rate(const Repetition& repetition) {
  return repetition.result.status == Status::ok && kept_up_img_per_s(repetition.result) > 0;
}

/// Step times of every pair of runs for which `alike` holds.
template <typename Alike>
std::vector<statistics::Pair> pair_steps(const Row& ceiling, const Row& row, const Alike& alike) {
  const double images = images_per_step(row);
  const auto step_ms = [&](const Repetition& repetition) {
    return 1e3 * images / kept_up_img_per_s(repetition.result);
  };
  std::vector<statistics::Pair> pairs;
  for (const Repetition& with : row.repetitions) {
    for (const Repetition& without : ceiling.repetitions) {
      if (!alike(with, without) || !has_rate(with) || !has_rate(without)) continue;
      const statistics::Pair pair{step_ms(without), step_ms(with)};
      if (std::isnormal(pair.a) && std::isnormal(pair.b)) pairs.push_back(pair);
    }
  }
  return pairs;
}

/// Upper bound for the share of images made before a window, if the window was too short to bound
/// it well; 0 otherwise.
double most_hidden_of(const Row& row) {
  if (row.is_ceiling) return 0;
  double most = 0;
  for (const Repetition& repetition : row.repetitions) {
    if (!has_rate(repetition)) continue;
    most = std::max(most, fact_of(repetition.result, "most_hidden_percent").value_or(0) / 100);
  }
  return most > 1 / kMinReserves ? std::min(most, 1.0) : 0;
}

std::optional<statistics::CostEstimate> cost_of(const Row& ceiling, const Row& row) {
  const double images = images_per_step(row);
  const statistics::CostTargets targets{.half_width = kCostHalfWidth,
                                        .most_hidden = most_hidden_of(row)};
  std::vector<statistics::Pair> pairs = paired_steps(ceiling, row);
  if (!pairs.empty()) return statistics::estimate_cost(pairs, images, targets);
  pairs = pair_steps(ceiling, row, [](const auto&, const auto&) { return true; });
  if (pairs.empty()) return std::nullopt;
  return statistics::estimate_cost(pairs, images, targets, false);
}

void summarise_cost(const SweepResult& sweep, Row& row) {
  row.input_cost.reset();
  row.unresolved.clear();
  const Row* const ceiling = ceiling_of(sweep, row);
  if (row.status != Status::ok && row.status != Status::partial) {
    row.unresolved = fmt::format("the row is {}", to_string(row.status));
  } else if (ceiling == nullptr) {
    row.unresolved = "no row measures the same trainer with batches that cost nothing";
  } else if (row.input_cost = cost_of(*ceiling, row); !row.input_cost) {
    const Row& culprit = ceiling->status == Status::ok ? row : *ceiling;
    row.unresolved =
        fmt::format("the {} row is {}", culprit.config.fake_location, to_string(culprit.status));
  }
}

}  // namespace

const char* const kInputCostDefinition =
    "100 (1 - with / without), where `with` is img_per_s of a repetition, or sustained_img_per_s "
    "if the reserve fell by more than a batch of each device, and `without` the same of the `gpu` "
    "row of the same trainer in the same round. Below five rounds: the middle round, the lowest "
    "and the highest; from five on: the mean of logarithms, with Student's 95 % interval. The "
    "highest includes what batches of before a short window may have hidden "
    "(most_hidden_percent). Kept between 0 and 100";

void summarise(SweepResult& sweep) {
  for (Row& row : sweep.rows) {
    summarise_status(row);
    summarise_rates(row);
  }
  for (Row& row : sweep.rows) summarise_cost(sweep, row);
}

const Row* ceiling_of(const SweepResult& sweep, const Row& row) {
  if (row.is_ceiling) return &row;
  const auto likeness = [&](const Row& other) {
    return std::ranges::count_if(config_keys(), [&](const ConfigKey& key) {
      return key.get(other.config) == key.get(row.config);
    });
  };
  const Row* best = nullptr;
  for (const Row& other : sweep.rows) {
    if (!other.is_ceiling || !same_trainer(other.config, row.config)) continue;
    if (best == nullptr || likeness(other) > likeness(*best)) best = &other;
  }
  return best;
}

double kept_up_img_per_s(const RunResult& result) {
  const double fall = result.reserve_start - result.reserve_end;
  const bool lived_on_reserve = fall > std::max(1, result.config.num_gpus);
  return lived_on_reserve && result.sustained_img_per_s > 0
             ? std::min(result.sustained_img_per_s, result.img_per_s)
             : result.img_per_s;
}

double reserve_before(const RunResult& result) {
  const double workers = fact_of(result, "loader_num_workers").value_or(0),
               each = fact_of(result, "loader_prefetch_factor").value_or(0);
  return std::max(0.0, result.reserve_start) +
         std::max(0.0, workers * each) * std::max(1, result.config.num_gpus);
}

std::vector<statistics::Pair> paired_steps(const Row& ceiling, const Row& row) {
  return pair_steps(ceiling, row, [](const auto& with, const auto& without) {
    return with.round == without.round;
  });
}

double images_per_step(const Row& row) {
  std::int64_t images = 0;
  for (const Repetition& repetition : row.repetitions) {
    images = std::max(images, repetition.result.images_per_step);
  }
  return static_cast<double>(images);
}

std::optional<OutlyingRound> outlying_round(const SweepResult& sweep) {
  constexpr std::size_t kFewest = 3;
  constexpr double kFar = 0.05, kTimesTheOthers = 3;
  std::optional<OutlyingRound> found;
  double farthest = kFar;
  for (const Row& row : sweep.rows) {
    std::vector<std::pair<double, std::int32_t>> rates;
    for (const Repetition& repetition : row.repetitions) {
      if (has_rate(repetition)) {
        rates.emplace_back(kept_up_img_per_s(repetition.result), repetition.round);
      }
    }
    if (rates.size() < kFewest) continue;
    std::ranges::sort(rates);
    const std::size_t last = rates.size() - 1;
    const double middle = rates[last / 2].first;
    for (const std::size_t end : {std::size_t{0}, last}) {
      const std::size_t low = end == 0 ? 1 : 0, high = end == 0 ? last : last - 1;
      const double others = rates[high].first - rates[low].first;
      const double gap = std::fabs(rates[end].first - rates[end == 0 ? low : high].first);
      if (gap <= kTimesTheOthers * others || gap / middle <= farthest) continue;
      farthest = gap / middle;
      found = OutlyingRound{rates[end].second, &row, rates[end].first, rates[low].first,
                            rates[high].first};
    }
  }
  return found;
}

bool has_failures(const SweepResult& sweep) {
  for (const Row& row : sweep.rows) {
    for (const Repetition& repetition : row.repetitions) {
      const Status status = repetition.result.status;
      const bool stopped = repetition.result.exit_code > 128;
      if (status == Status::failed || (status == Status::partial && !stopped)) return true;
    }
  }
  return false;
}

}  // namespace penstock
