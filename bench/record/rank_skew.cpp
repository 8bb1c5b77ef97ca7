// SPDX-License-Identifier: Apache-2.0
#include "bench/record/rank_skew.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <utility>

#include "bench/record/report_text.h"
#include "bench/record/step_parts.h"
#include "bench/statistics/series.h"

namespace penstock {
namespace {

constexpr double kConfidence = 0.99;
constexpr double kNoticeable = 0.01;  ///< of a step: below it no rank is said to wait
constexpr double kMoving = 0.02;      ///< of a step
/// Threads wake up later than this by chance, whatever a step takes.
constexpr double kNoticeableMs = 0.1;
constexpr std::size_t kFewestSteps = 20;

/// The waits of all ranks in one step.
struct StepWaits {
  std::size_t slowest = 0;  ///< the rank with the longest wait
  double longest = 0, second = 0, shortest = 0, mean = 0;
};

std::size_t common_steps(std::span<const RankWaits> ranks) {
  std::size_t steps = ranks.empty() ? 0 : SIZE_MAX;
  for (const RankWaits& rank : ranks) steps = std::min(steps, rank.waits_ms.size());
  return steps;
}

StepWaits waits_in(std::span<const RankWaits> ranks, std::size_t step) {
  StepWaits waits{.shortest = ranks.front().waits_ms[step]};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const double wait = ranks[rank].waits_ms[step];
    if (rank == 0 || wait > waits.longest) {
      waits.second = waits.longest;
      waits.longest = wait;
      waits.slowest = rank;
    } else {
      waits.second = std::max(waits.second, wait);
    }
    waits.shortest = std::min(waits.shortest, wait);
    waits.mean += wait / static_cast<double>(ranks.size());
  }
  return waits;
}

std::vector<StepWaits> all_steps(std::span<const RankWaits> ranks) {
  std::vector<StepWaits> steps;
  for (std::size_t i = 0; i < common_steps(ranks); ++i) steps.push_back(waits_in(ranks, i));
  return steps;
}

bool is_noticeable(double wait_ms, double share, double step_ms) {
  return wait_ms > std::max(share * step_ms, kNoticeableMs);
}

bool is_decided(const StepWaits& step, double step_ms) {
  return is_noticeable(step.longest - step.shortest, kNoticeable, step_ms);
}

/// True if the mean of the differences is above chance. Once in a while a machine stalls another
/// rank for longer than the delay of many steps, so the mean without the ends of the distribution
/// counts too.
bool are_late(std::vector<double> late_ms, double step_ms) {
  constexpr double kEnd = 0.05;
  const auto is_late = [&] {
    return is_noticeable(statistics::mean_of_series(late_ms, kConfidence).low, kNoticeable,
                         step_ms);
  };
  if (is_late()) return true;
  const double least = statistics::quantile(late_ms, kEnd);
  const double most = statistics::quantile(late_ms, 1 - kEnd);
  for (double& ms : late_ms) ms = std::clamp(ms, least, most);
  return is_late();
}

/// What a step would save: nothing if another rank's batch comes last.
statistics::Estimate saving_of(std::vector<double> late_ms) {
  for (double& ms : late_ms) ms = std::max(ms, 0.0);
  return statistics::mean_of_series(late_ms, kConfidence);
}

/// A candidate for the culprit, and how much later its batches come than those of all others.
struct Suspect {
  Culprit kind = Culprit::none;
  std::int32_t rank = -1;
  std::string host{};
  bool is_late = false;  ///< by more than chance
  statistics::Estimate delay_ms{};
};

Suspect suspect_of(std::span<const RankWaits> ranks, std::span<const StepWaits> steps,
                   std::size_t rank, double step_ms) {
  std::vector<double> late;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepWaits& step = steps[i];
    late.push_back(ranks[rank].waits_ms[i] - (step.slowest == rank ? step.second : step.longest));
  }
  Suspect suspect{Culprit::rank, ranks[rank].rank, ranks[rank].host};
  suspect.is_late = are_late(late, step_ms);
  suspect.delay_ms = saving_of(std::move(late));
  return suspect;
}

/// The ranks of a late host do not all wait: those that are a little faster work ahead while the
/// last one is awaited. So the mean over its ranks says whether the host is late, since a longest
/// wait is longer for more ranks; and its longest wait says how much.
Suspect suspect_of(std::span<const RankWaits> ranks, std::size_t steps, const std::string& host,
                   double step_ms) {
  std::vector<double> late, later_mean;
  for (std::size_t i = 0; i < steps; ++i) {
    struct Waits {
      double sum = 0, longest = 0, count = 0;
    };
    std::map<std::string, Waits> hosts;
    for (const RankWaits& rank : ranks) {
      Waits& waits = hosts[rank.host];
      waits.sum += rank.waits_ms[i];
      waits.longest = std::max(waits.longest, rank.waits_ms[i]);
      ++waits.count;
    }
    double longest = 0, mean = 0;  // of the other hosts
    for (const auto& [name, waits] : hosts) {
      if (name == host) continue;
      longest = std::max(longest, waits.longest);
      mean = std::max(mean, waits.sum / waits.count);
    }
    late.push_back(hosts[host].longest - longest);
    later_mean.push_back(hosts[host].sum / hosts[host].count - mean);
  }
  Suspect suspect{Culprit::host, -1, host};
  suspect.is_late = are_late(late, step_ms) && are_late(later_mean, step_ms);
  suspect.delay_ms = saving_of(std::move(late));
  return suspect;
}

/// The rank or the host that makes the others wait.
std::optional<Suspect> find_culprit(std::span<const RankWaits> ranks,
                                    std::span<const StepWaits> steps, double step_ms) {
  constexpr double kAlone = 0.5;  // a rank with this share of its host's delay
  std::optional<Suspect> culprit;
  const auto take = [&](Suspect suspect, double share) {
    if (!suspect.is_late) return;
    if (culprit && share * suspect.delay_ms.value <= culprit->delay_ms.value) return;
    culprit = std::move(suspect);
  };
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    take(suspect_of(ranks, steps, rank, step_ms), 1);
  }
  std::map<std::string, std::size_t> hosts;
  for (const RankWaits& rank : ranks) ++hosts[rank.host];
  for (const auto& [host, count] : hosts) {
    if (count < 2 || hosts.size() < 2 || host.empty()) continue;
    const bool is_host = culprit && culprit->kind == Culprit::host;
    take(suspect_of(ranks, steps.size(), host, step_ms), is_host ? 1 : kAlone);
  }
  return culprit;
}

/// The waits of the steps of a record of one rank, without the first one.
std::vector<double> waits_of(const RunResult& record) {
  std::vector<double> waits;
  for (std::size_t i = 1; i < record.starved_ms.size(); ++i) {
    const double copy = i < record.copy_exposed_ms.size() ? record.copy_exposed_ms[i] : 0;
    waits.push_back(record.starved_ms[i] + copy);
  }
  return waits;
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/// The share of the steps that were decided in which the culprit's batch came last.
double share_of(const RankSkew& skew, std::span<const RankWaits> ranks,
                std::span<const StepWaits> steps, double step_ms) {
  double decided = 0, its = 0;
  for (const StepWaits& step : steps) {
    if (!is_decided(step, step_ms)) continue;
    ++decided;
    const RankWaits& slowest = ranks[step.slowest];
    its += skew.culprit == Culprit::host ? slowest.host == skew.host : slowest.rank == skew.rank;
  }
  return percent(its, decided);
}

/// Without the first capital and the full stop.
std::string describe_skew(const RankSkew& skew) {
  const std::string size =
      fmt::format("{:.2f} ms a step, {:.1f} % of its time (99 % interval {:.2f} to {:.2f} ms)",
                  skew.delay_ms, skew.delay_percent, skew.delay_low_ms, skew.delay_high_ms);
  switch (skew.culprit) {
    case Culprit::undecided:
      return "it is not decided whether a rank's input makes the others wait: there are too few "
             "steps, or they vary too much. Measure more steps";
    case Culprit::none:
      return "no rank's input makes the others wait";
    case Culprit::rank:
      return fmt::format(
          "rank {}{} makes the others wait for its input: {}; its batch came last in {:.0f} % of "
          "the steps in which ranks waited for another's batch. Look at its loader, its share of "
          "the data, and its host's disk and processors",
          skew.rank, skew.host.empty() ? "" : " on " + skew.host, size, skew.culprit_percent);
    case Culprit::host:
      return fmt::format(
          "the ranks on {} make the others wait for their input: {}; one of them had the last "
          "batch in {:.0f} % of the steps in which ranks waited for another's batch. Look at the "
          "host's disk, network and processors",
          skew.host, size, skew.culprit_percent);
    case Culprit::moving:
      return fmt::format(
          "ranks wait for each other's input, and the last one changes from step to step: {}. "
          "Batches of uneven work or a shared storage do this; prepare more batches ahead",
          size);
  }
  return {};
}

}  // namespace

RankSkew find_skew(std::span<const RankWaits> ranks, double step_ms) {
  RankSkew skew;
  const std::vector<StepWaits> steps = all_steps(ranks);
  std::vector<double> spread_ms, uneven_ms;
  double decided = 0;
  for (const StepWaits& step : steps) {
    spread_ms.push_back(step.longest - step.shortest);
    uneven_ms.push_back(step.longest - step.mean);
    decided += is_decided(step, step_ms);
  }
  skew.spread = percentiles_of("spread", spread_ms);
  skew.decided_percent = percent(decided, static_cast<double>(steps.size()));
  if (ranks.size() < 2 || !(step_ms > 0)) return skew;
  if (steps.size() < kFewestSteps) {
    if (decided > 0) skew.culprit = Culprit::undecided;
    return skew;
  }

  const auto take = [&](Culprit culprit, const statistics::Estimate& delay_ms) {
    skew.culprit = culprit;
    skew.delay_ms = delay_ms.value;
    skew.delay_low_ms = delay_ms.low;
    skew.delay_high_ms = delay_ms.high;
    skew.delay_percent = percent(delay_ms.value, step_ms);
  };
  if (const std::optional<Suspect> culprit = find_culprit(ranks, steps, step_ms)) {
    take(culprit->kind, culprit->delay_ms);
    skew.rank = culprit->rank;
    skew.host = culprit->host;
  }
  const statistics::Estimate uneven = statistics::mean_of_series(uneven_ms, kConfidence);
  if (skew.culprit == Culprit::none && is_noticeable(uneven.low, kMoving, step_ms)) {
    take(Culprit::moving, uneven);
  } else if (skew.culprit == Culprit::none && is_noticeable(uneven.high, kMoving, step_ms)) {
    skew.culprit = Culprit::undecided;
  } else if (skew.culprit != Culprit::none) {
    skew.culprit_percent = share_of(skew, ranks, steps, step_ms);
  }
  return skew;
}

std::vector<double> slowest_percents(std::span<const RankWaits> ranks, double step_ms) {
  std::vector<double> percents(ranks.size());
  const std::vector<StepWaits> steps = all_steps(ranks);
  for (const StepWaits& step : steps) {
    if (is_decided(step, step_ms)) ++percents[step.slowest];
  }
  for (double& count : percents) count = percent(count, static_cast<double>(steps.size()));
  return percents;
}

std::string sentence_of(const RankSkew& skew) {
  std::string text = describe_skew(skew) + ".";
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

std::string spread_sentence(const RankSkew& skew) {
  return fmt::format(
      "In {:.0f} % of the steps ranks waited for another's batch; the longest wait of a step less "
      "the shortest: {:.2f} ms (p50), {:.2f} ms (p95), {:.2f} ms (p99).",
      skew.decided_percent, skew.spread.p50, skew.spread.p95, skew.spread.p99);
}

document::Table ranks_table(std::span<const RankResult> ranks, std::string_view unit) {
  document::Table table{{{"rank", true},
                         {"host"},
                         {fmt::format("{}/s", unit), true},
                         {"ready p50 ms", true},
                         {"p95", true},
                         {"p99", true},
                         {"device waited p50 ms", true},
                         {"p95", true},
                         {"p99", true},
                         {"last in %", true},
                         {"makes a batch in ms", true}},
                        {}};
  for (const RankResult& rank : ranks) {
    if (rank.batch_ready.name.empty()) continue;
    std::vector<std::string> cells{fmt::format("{}", rank.rank), rank.host,
                                   format_fixed(rank.img_per_s, 1)};
    for (const PartTimes* const times : {&rank.batch_ready, &rank.exposed_wait}) {
      for (const double ms : {times->p50, times->p95, times->p99}) {
        cells.push_back(format_fixed(ms, 2));
      }
    }
    cells.push_back(format_fixed(rank.last_percent, 0));
    cells.push_back(rank.batch_ms > 0 ? format_fixed(rank.batch_ms, 2) : "-");
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string_view ranks_terms() {
  return "Ready: from a rank's request for a batch until it was there. Device waited: no step to "
         "compute, because the batch was not on the device. Last in: share of the steps in which "
         "this rank's batch came last and others waited for it. Makes a batch: what the busiest "
         "stage of its feeder works for a batch.";
}

JoinedRanks join_ranks(std::span<const RunResult> records) {
  JoinedRanks joined;
  std::size_t jobs = 0;
  for (const RunResult& record : records) {
    if (record.ranks.size() < 2) continue;
    ++jobs;
    joined.ranks.insert(joined.ranks.end(), record.ranks.begin(), record.ranks.end());
    joined.skew = jobs == 1 ? record.rank_skew : std::nullopt;
  }
  if (jobs > 0) return joined;
  std::vector<RankWaits> waits;
  double step_ms = 0;
  for (const RunResult& record : records) {
    if (record.ranks.empty()) continue;
    const RankResult& rank = joined.ranks.emplace_back(record.ranks.front());
    waits.push_back({rank.rank, rank.host, waits_of(record)});
    step_ms += statistics::mean(record.step_ms) / static_cast<double>(records.size());
  }
  if (waits.size() < 2) return joined;
  joined.skew = find_skew(waits, step_ms);
  const std::vector<double> last = slowest_percents(waits, step_ms);
  for (std::size_t i = 0; i < last.size(); ++i) joined.ranks[i].last_percent = last[i];
  return joined;
}

document::Section ranks_section(std::span<const RunResult> records) {
  const JoinedRanks joined = join_ranks(records);
  document::Table table = ranks_table(joined.ranks, records.empty() ? "" : records.front().unit);
  if (table.rows.empty()) return {};
  document::Section section{"Ranks", {std::move(table)}};
  if (joined.skew) {
    section.blocks.push_back(
        document::Paragraphs{{sentence_of(*joined.skew), spread_sentence(*joined.skew)}});
  }
  section.blocks.push_back(
      document::Paragraphs{{std::string(ranks_terms())}, "", document::Look::soft});
  return section;
}

document::Section ranks_section(const SweepResult& sweep) {
  std::vector<RunResult> runs;
  for (const Row& row : sweep.rows) {
    for (const Repetition& repetition : row.repetitions) {
      if (repetition.result.ranks.size() > 1) runs.push_back(repetition.result);
    }
  }
  return ranks_section(runs);
}

}  // namespace penstock
