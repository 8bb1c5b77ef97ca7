// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/sweep_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

#include "bench/analysis/cost.h"
#include "bench/record/report_text.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/pages/flow_views.h"
#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"
#include "trainer/backends/emulated/presets.h"

namespace penstock::report {
namespace {

std::string_view tone_of(statistics::Verdict verdict) {
  if (verdict == statistics::Verdict::slower) return "bad";
  return verdict == statistics::Verdict::equal ? "good" : "open";
}

std::string number_word(std::int64_t number) {
  constexpr std::array<std::string_view, 9> kWords = {"One", "Two",   "Three", "Four", "Five",
                                                      "Six", "Seven", "Eight", "Nine"};
  const bool has_word = number >= 1 && number <= std::ssize(kWords);
  return has_word ? std::string(kWords[static_cast<std::size_t>(number - 1)])
                  : fmt::format("{}", number);
}

/// "H100", from the preset "h100-mlperf-storage" with this rate; empty if no preset has it.
std::string preset_device(double img_per_s) {
  for (const emulated::Preset& preset : emulated::kPresets) {
    if (std::fabs(preset.img_per_s / img_per_s - 1) > 1e-9) continue;
    std::string name(preset.name.substr(0, preset.name.find('-')));
    for (char& letter : name) {
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    }
    return name;
  }
  return "";
}

/// "Two H100s would train 3,571 img/s".
std::string demand_clause(const Row& ceiling) {
  const std::int64_t devices = all_devices(ceiling.config);
  const std::string rate = fixed_text(ceiling.img_per_s->median, 0);
  const std::string count = number_word(devices);
  const std::string plural = devices == 1 ? "" : "s";
  const auto emulated = fact_of(ceiling.repetitions.front().result, "emulated_img_per_s");
  if (!emulated) {
    return fmt::format("{} device{} ({}) train{} {} img/s", count, plural, ceiling.config.device,
                       devices == 1 ? "s" : "", rate);
  }
  const std::string name = preset_device(*emulated);
  if (!name.empty()) return fmt::format("{} {}{} would train {} img/s", count, name, plural, rate);
  return fmt::format("{} device{} of {} img/s{} would train {} img/s", count, plural,
                     number_text(*emulated, 4), devices == 1 ? "" : " each", rate);
}

/// The stage that limits rows, and the rows that it limits.
struct Limit {
  std::string work;  ///< "JPEG decoding"; empty: unknown
  bool on_cores = false;
  std::vector<const Row*> rows;  ///< lowest cost first
};

std::vector<Limit> limits_of(const SweepResult& sweep) {
  std::vector<const Row*> rows = rows_by_cost(sweep);
  std::reverse(rows.begin(), rows.end());
  std::vector<Limit> limits;
  for (const Row* row : rows) {
    if (row->input_cost->verdict != statistics::Verdict::slower) continue;
    Limit limit;
    const std::optional<analysis::Diagnosis> diagnosis = diagnosis_of(sweep, *row);
    if (diagnosis && diagnosis->bottleneck) {
      const analysis::StageFinding& stage = diagnosis->stages[*diagnosis->bottleneck];
      limit.work = analysis::work_of_stage(stage);
      limit.on_cores = !is_outside(stage.role) && stage.role != StageRole::copies;
    }
    auto same = std::ranges::find(limits, limit.work, &Limit::work);
    if (same == limits.end()) same = limits.insert(limits.end(), std::move(limit));
    same->rows.push_back(row);
  }
  return limits;
}

/// Adapts a clause with a capital letter to the middle of a sentence. Abbreviations such as JPEG
/// keep their capitals.
std::string in_a_sentence(const std::string& clause) {
  const bool is_name =
      clause.size() < 2 || std::isupper(static_cast<unsigned char>(clause[1])) != 0;
  if (is_name) return clause;
  return static_cast<char>(std::tolower(clause.front())) + clause.substr(1);
}

/// "JPEG decoding on these 2 cores supplies 2,760 img/s (77 %) with queue".
std::string supply_clause(const SweepResult& sweep, const Row& ceiling, const Limit& limit,
                          bool with_labels) {
  std::vector<std::string> rates;
  for (const Row* row : limit.rows) {
    const double share = 1 - row->input_cost->percent.value / 100;
    const std::string rate =
        fmt::format("{} img/s ({} %)", fixed_text(share * ceiling.img_per_s->median, 0),
                    fixed_text(100 * share, 0));
    const bool labelled = with_labels || limit.work.empty();
    rates.push_back(labelled ? fmt::format("{} with {}", rate, label_of(sweep, *row)) : rate);
  }
  if (limit.work.empty()) {
    return fmt::format("{} {}", all_devices(ceiling.config) == 1 ? "it reaches" : "they reach",
                       enumerated(std::move(rates)));
  }
  const std::int32_t cores = sweep.environment.usable_cores;
  const std::string where =
      limit.on_cores
          ? fmt::format(" on {} core{}", cores == 1 ? "this" : fmt::format("these {}", cores),
                        cores == 1 ? "" : "s")
          : "";
  return fmt::format("{}{} supplies {}", limit.work, where, enumerated(std::move(rates)));
}

/// "Copying batches to the device and receiving messages cost nothing measurable (host,
/// zmq-consume: less than 1 %)." If some work limits other rows, names the rows instead.
std::string free_sentence(const SweepResult& sweep, const std::vector<Limit>& limits) {
  std::vector<std::string> works, labels;
  bool all_known = true;
  double margin = 0;
  for (const Row& row : sweep.rows) {
    if (row.is_ceiling || !row.input_cost || row.input_cost->verdict != statistics::Verdict::equal)
      continue;
    labels.push_back(label_of(sweep, row));
    margin = 100 * row.input_cost->margin;
    const std::optional<analysis::Diagnosis> diagnosis = diagnosis_of(sweep, row);
    all_known = all_known && diagnosis && !diagnosis->stages.empty();
    if (!all_known) continue;
    for (const analysis::StageFinding& stage : diagnosis->stages) {
      const std::string work = analysis::work_of_stage(stage);
      all_known = all_known && std::ranges::count(limits, work, &Limit::work) == 0;
      if (std::ranges::count(works, work) == 0) works.push_back(work);
    }
  }
  if (labels.empty()) return "";
  const std::size_t count = all_known ? works.size() : labels.size();
  const std::string costs = fmt::format("cost{} nothing measurable", count == 1 ? "s" : "");
  if (!all_known) {
    return fmt::format("{} {} (less than {:g} %).", enumerated(labels), costs, margin);
  }
  for (std::size_t i = 1; i < works.size(); ++i) works[i] = in_a_sentence(works[i]);
  return fmt::format("{} {} ({}: less than {:g} %).", enumerated(works), costs, join(labels),
                     margin);
}

/// Names the rows that failed; empty if none did.
std::string failed_sentence(const SweepResult& sweep) {
  std::vector<std::string> labels;
  for (const Row& row : sweep.rows) {
    if (row.status == Status::failed) labels.push_back(label_of(sweep, row));
  }
  if (labels.empty()) return "";
  const bool one = labels.size() == 1;
  if (labels.size() == sweep.rows.size()) {
    return fmt::format("Nothing was measured: {} failed. The note{} below say{} why.",
                       enumerated(std::move(labels)), one ? "" : "s", one ? "s" : "");
  }
  return fmt::format("{} could not be measured; the note{} below say{} why.",
                     enumerated(std::move(labels)), one ? "" : "s", one ? "s" : "");
}

/// The only ceiling in the sweep; null if there is none, or more than one.
const Row* only_ceiling(const SweepResult& sweep) {
  const Row* ceiling = nullptr;
  for (const Row& row : sweep.rows) {
    if (!row.is_ceiling || !row.img_per_s) continue;
    if (ceiling != nullptr) return nullptr;
    ceiling = &row;
  }
  return ceiling;
}

}  // namespace

std::optional<analysis::Diagnosis> diagnosis_of(const SweepResult& sweep, const Row& row) {
  const Row* const ceiling = ceiling_of(sweep, row);
  if (row.is_ceiling || !row.input_cost || ceiling == nullptr) return std::nullopt;
  std::optional<analysis::InputCostFinding> cost =
      analysis::find_cost(analysis::pair_blocks(*ceiling, row), images_per_step(row), {});
  if (!cost) return std::nullopt;
  static_cast<statistics::CostEstimate&>(*cost) = *row.input_cost;  // the cost in every report
  const FeederEntry* const feeder =
      match_entry(feeder_table(), parse_component(row.config.fake_location).name);
  return analysis::diagnose(
      {.coupled = row, .cost = *cost, .has_producer = feeder != nullptr && feeder->needs_producer});
}

std::vector<std::string> answer_of(const SweepResult& sweep) {
  const Row* const ceiling = only_ceiling(sweep);
  const std::vector<const Row*> rows = rows_by_cost(sweep);
  std::vector<std::string> answer;
  if (ceiling != nullptr) {
    const std::vector<Limit> limits = limits_of(sweep);
    std::string first = demand_clause(*ceiling);
    for (const Limit& limit : limits) {
      const std::string clause = supply_clause(sweep, *ceiling, limit, rows.size() > 1);
      first += &limit == &limits.front() ? "; " + in_a_sentence(clause) : ". " + clause;
    }
    answer.push_back(first + ".");
    if (std::string free = free_sentence(sweep, limits); !free.empty()) {
      answer.push_back(std::move(free));
    }
  }
  for (const Row* row : rows) {
    const statistics::Verdict verdict = row->input_cost->verdict;
    const bool said =
        verdict == statistics::Verdict::slower || verdict == statistics::Verdict::equal;
    if (ceiling == nullptr || !said) answer.push_back(cost_sentence(sweep, *row));
  }
  if (std::string failed = failed_sentence(sweep); !failed.empty()) answer.push_back(failed);
  if (!answer.empty() && !rows.empty() && was_busy(sweep.environment)) {
    answer.emplace_back("Other programs took processor time meanwhile: the figures are rough.");
  }
  return answer;
}

std::vector<document::VerdictLine> verdict_of(const SweepResult& sweep) {
  std::vector<document::VerdictLine> lines;
  for (const Row* row : rows_by_cost(sweep)) {
    lines.push_back({tone_of(row->input_cost->verdict), cost_sentence(sweep, *row)});
  }
  return lines;
}

std::vector<SplitBar> splits_of(const SweepResult& sweep, const std::vector<const Row*>& rows) {
  std::vector<SplitBar> bars;
  for (const Row* row : rows) {
    const std::vector<analysis::BlockPair> rounds =
        analysis::pair_blocks(*ceiling_of(sweep, *row), *row);
    const bool known = std::ranges::all_of(rounds, [](const analysis::BlockPair& round) {
      return round.ceiling.split_known && round.coupled.split_known;
    });
    if (rounds.empty() || !known) continue;
    const analysis::CostSplit split = analysis::find_cost(rounds, images_per_step(*row), {})->split;
    const statistics::Estimate& total = row->input_cost->ms_per_step;  // the cost in every report
    bars.push_back({label_of(sweep, *row), total, split.starvation_ms, split.transfer_ms,
                    split.interference_ms,
                    total.value - split.starvation_ms.value - split.transfer_ms.value -
                        split.interference_ms.value});
  }
  return bars;
}

}  // namespace penstock::report
