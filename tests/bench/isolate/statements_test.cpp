// SPDX-License-Identifier: Apache-2.0
// The tables that a new user sees first: a sweep of the feeders, and `isolate` on a feeder that
// decodes and on one that receives. The runs are simulated, so the truth is known. No report may
// say what the data do not support, and all reports of one result must agree.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "bench/isolate/isolation_json.h"
#include "bench/isolate/isolation_report.h"
#include "bench/record/report_text.h"
#include "bench/record/result_json.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/pages/sweep_costs.h"
#include "bench/report/report.h"
#include "tests/bench/isolate/isolation_fixture.h"
#include "tests/bench/isolate/isolator_fixture.h"
#include "tests/bench/record/sweep_rows.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kTries = 10;

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// The visible text of a page, of Markdown or of wrapped lines, in one common form.
std::string seen(std::string text) {
  const std::pair<std::string_view, std::string_view> kMarks[] = {
      {"\xC2\xA0", " "}, {"\xE2\x88\x92", "-"}, {"&lt;", "<"},  {"&gt;", ">"},
      {"&quot;", "\""},  {"&#39;", "'"},        {"&amp;", "&"}, {"\\", ""}};
  for (const auto& [from, to] : kMarks) text = replaced(std::move(text), from, to);
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

/// All numbers before a word, as in "5 blocks".
std::vector<int> counts_of(const std::string& text, const std::string& pattern) {
  std::vector<int> counts;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    counts.push_back(std::stoi((*at)[1]));
  }
  return counts;
}

// ---- a sweep
// -------------------------------------------------------------------------------------

/// A row, and its true cost in per cent.
struct Fed {
  std::string feeder;
  double step_ms, truth;
};
const std::vector<Fed> kFeeders = {{"host", 10, 0}, {"queue", 16, 37.5}, {"zmq-consume", 40, 75}};

/// Runs of a device of 10 ms per step. Speeds differ by +- `noise` from run to run.
SweepResult simulated_sweep(std::uint64_t seed, std::int32_t rounds, double noise) {
  SweepResult sweep;
  sweep.command = "penstock sweep --out out";
  sweep.repetitions = rounds;
  sweep.varied = {&find_config_key("fake_location")};
  std::vector<Fed> rows = {{"gpu", 10, 0}};
  rows.insert(rows.end(), kFeeders.begin(), kFeeders.end());
  for (std::size_t index = 0; index < rows.size(); ++index) {
    Row row = make_row(rows[index].feeder, index == 0);
    for (std::int32_t round = 0; round < rounds; ++round) {
      Random random(seed, index, static_cast<std::uint64_t>(round));
      const double step_ms = rows[index].step_ms * (1 + noise * random.uniform(-1, 1));
      RunResult result = make_result(Status::ok, 1e5 / step_ms, 1e5 / step_ms);
      result.step_ms.assign(20, step_ms);
      add_repetition(row, round, std::move(result));
    }
    sweep.rows.push_back(std::move(row));
  }
  summarise(sweep);
  return sweep;
}

/// The visible text of every report of a sweep, for people or programs.
std::map<std::string, std::string> reports_of(const SweepResult& sweep) {
  std::map<std::string, std::string> reports;
  for (const char* name : {"table", "markdown", "html", "csv", "json"}) {
    std::ostringstream text;
    find_entry(report::report_table(), name).write(sweep, {.width = 400}, text);
    reports[name] = seen(text.str());
  }
  return reports;
}

void expect_said(const std::map<std::string, std::string>& reports, const std::string& text) {
  for (const char* name : {"table", "markdown", "html"}) {
    EXPECT_TRUE(says(reports.at(name), text)) << name;
  }
}

void expect_json(const nlohmann::json& json, const statistics::Estimate& estimate) {
  EXPECT_EQ(json["median"], estimate.value);
  EXPECT_EQ(json["low"], estimate.low);
  EXPECT_EQ(json["high"], estimate.high);
}

/// Of a cost, in per cent.
void expect_ordered(const statistics::Estimate& percent) {
  EXPECT_LE(0, percent.low);
  EXPECT_LE(percent.low, percent.value);
  EXPECT_LE(percent.value, percent.high);
  EXPECT_LE(percent.high, 100);
}

void expect_reports_agree(const SweepResult& sweep) {
  const std::map<std::string, std::string> reports = reports_of(sweep);
  const nlohmann::json json = nlohmann::json::parse(to_json(sweep).dump());
  for (const std::string& sentence : report::answer_of(sweep)) expect_said(reports, seen(sentence));
  for (std::size_t index = 0; index < sweep.rows.size(); ++index) {
    const Row& row = sweep.rows[index];
    if (row.is_ceiling) continue;
    ASSERT_TRUE(row.input_cost) << row.unresolved;
    const std::string sentence = cost_sentence(sweep, row);
    for (const auto& [name, text] : reports) {
      if (name == "table") continue;  // its answer is shorter and says the same
      EXPECT_TRUE(says(text, seen(sentence))) << name << " does not say: " << sentence;
    }
    const statistics::Estimate& percent = row.input_cost->percent;
    expect_json(json["runs"][index]["input_cost"]["percent"], percent);
    if (row.input_cost->verdict == statistics::Verdict::faster) continue;
    expect_said(reports, format_estimate(percent, 1));
    EXPECT_TRUE(says(reports.at("html"), fmt::format(": {:.1f} % (", percent.value)))
        << "the figure lacks " << percent.value;
  }
}

/// Counts verdicts of a cost where there is none: 1 in 40 for an interval of 95 %.
void expect_supported(const SweepResult& sweep, std::size_t rounds, int& false_alarms) {
  for (std::size_t feeder = 0; feeder < kFeeders.size(); ++feeder) {
    const statistics::CostEstimate& cost = *sweep.rows[feeder + 1].input_cost;
    const double truth = kFeeders[feeder].truth;
    expect_ordered(cost.percent);
    EXPECT_EQ(cost.percent.is_spread,
              rounds < statistics::kRoundsForInterval || cost.percent.is_spread);
    const auto [low, high] = std::minmax_element(cost.rounds.begin(), cost.rounds.end());
    if (cost.percent.is_spread) {
      EXPECT_EQ(cost.percent.low, std::max(0.0, *low));
      EXPECT_EQ(cost.percent.high, std::max(0.0, *high));
    }
    if (*low > 0) {
      EXPECT_GT(cost.percent.low, 0) << "every round lost something";
    }
    if (*low > statistics::kBeyondNoisePercent) {
      EXPECT_EQ(cost.verdict, statistics::Verdict::slower);
    } else if (rounds < statistics::kRoundsForVerdict) {
      EXPECT_EQ(cost.verdict, statistics::Verdict::undecided);
    }
    false_alarms += truth == 0 && cost.verdict == statistics::Verdict::slower ? 1 : 0;
    if (truth > 0) {
      EXPECT_NE(cost.verdict, statistics::Verdict::equal);
      EXPECT_NE(cost.verdict, statistics::Verdict::faster);
    }
  }
}

/// The sentence of the answer that names feeders without cost; empty: none.
std::string free_sentence_of(const std::vector<std::string>& answer) {
  for (const std::string& sentence : answer) {
    if (says(sentence, "nothing measurable")) return sentence;
  }
  return "";
}

void expect_answer_supported(const SweepResult& sweep) {
  const std::vector<std::string> answer = report::answer_of(sweep);
  ASSERT_FALSE(answer.empty());
  const double ceiling = sweep.rows[0].img_per_s->median;
  EXPECT_TRUE(says(answer.front(), report::fixed_text(ceiling, 0) + " img/s"));
  const auto compared = std::count_if(sweep.rows.begin(), sweep.rows.end(),
                                      [](const Row& row) { return !row.is_ceiling; });
  for (const Row& row : sweep.rows) {
    if (row.is_ceiling) continue;
    const statistics::CostEstimate& cost = *row.input_cost;
    const std::string label = label_of(sweep, row);
    const std::string supply = fmt::format(
        "{} img/s ({} %)", report::fixed_text(ceiling * (1 - cost.percent.value / 100), 0),
        report::fixed_text(100 - cost.percent.value, 0));
    const std::string with = compared > 1 ? supply + " with " + label : supply;
    EXPECT_EQ(says(answer.front(), with), cost.verdict == statistics::Verdict::slower)
        << with << ": " << answer.front();
    EXPECT_EQ(says(free_sentence_of(answer), label), cost.verdict == statistics::Verdict::equal)
        << label;
    const bool open = cost.verdict == statistics::Verdict::undecided ||
                      cost.verdict == statistics::Verdict::faster;
    EXPECT_EQ(std::count(answer.begin(), answer.end(), cost_sentence(sweep, row)), open ? 1 : 0)
        << label;
  }
}

TEST(SweepStatements, TheAnswerNamesTheEmulatedDevicesAndTheWorkThatLimits) {
  SweepResult sweep;
  sweep.environment = make_environment();
  sweep.repetitions = 5;
  sweep.varied = {&find_config_key("fake_location")};
  sweep.rows = {make_long_row("gpu", 0, true), make_long_row("host", 0.02),
                make_long_row("queue", 27.55)};
  for (Row& row : sweep.rows) {
    row.config.num_gpus = 2;
    for (Repetition& repetition : row.repetitions) {
      RunResult& result = repetition.result;
      result.config.num_gpus = 2;
      result.facts["emulated_img_per_s"] = 400 / 0.224;
      if (row.config.fake_location == "host") result.stages = {result.stages.back()};
    }
  }
  summarise(sweep);
  EXPECT_EQ(report::answer_of(sweep),
            (std::vector<std::string>{
                "Two H100s would train 3,571 img/s; JPEG decoding on these 2 cores supplies 2,020 "
                "img/s (57 %) with queue.",
                "Copying batches to the device costs nothing measurable (host: less than 1 %)."}));
  for (Repetition& repetition : sweep.rows[2].repetitions) repetition.result.stages.clear();
  EXPECT_EQ(report::answer_of(sweep).front(),
            "Two H100s would train 3,571 img/s; they reach 2,020 img/s (57 %) with queue.");
  for (Row& row : sweep.rows) {
    row.config.num_gpus = 1;
    row.config.num_processes = 2;
  }
  EXPECT_EQ(report::answer_of(sweep).front(),
            "Two H100s would train 3,571 img/s; they reach 2,020 img/s (57 %) with queue.");
}

TEST(SweepStatements, TheAnswerSaysThatTheMachineWasBusyAndWhichRowsFailed) {
  SweepResult sweep = simulated_sweep(1, 5, 0);
  sweep.environment = make_environment();
  sweep.environment.busy_percent = 40;
  const auto fail = [](Row& row) {
    for (Repetition& repetition : row.repetitions) {
      repetition.result = make_result(Status::failed, 0, 0);
      repetition.result.reason = "its files are damaged";
    }
  };
  fail(sweep.rows[1]);
  summarise(sweep);
  std::vector<std::string> answer = report::answer_of(sweep);
  ASSERT_GE(answer.size(), 3U);
  EXPECT_EQ(answer.end()[-2],
            label_of(sweep, sweep.rows[1]) + " could not be measured; the note below says why.");
  EXPECT_EQ(answer.back(), "Other programs took processor time meanwhile: the figures are rough.");
  EXPECT_FALSE(how_to_read(sweep).empty());
  for (Row& row : sweep.rows) fail(row);
  summarise(sweep);
  answer = report::answer_of(sweep);
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_TRUE(answer[0].starts_with("Nothing was measured: ")) << answer[0];
  ASSERT_EQ(how_to_read(sweep).size(), 1U) << "terms of figures that are not there";
  EXPECT_EQ(notes_of(sweep).front(), "all rows: failed: its files are damaged.");
}

TEST(SweepStatements, TheHeadlineSaysEachOfSeveralDevicesAndRowsAlone) {
  SweepResult sweep;
  sweep.repetitions = 3;
  sweep.rows = {make_long_row("gpu", 0, true)};
  const auto headline_for = [&](std::int32_t devices) {
    for (Row& row : sweep.rows) {
      row.config.num_gpus = devices;
      for (Repetition& repetition : row.repetitions) {
        repetition.result.facts["emulated_img_per_s"] = 400 / 0.224;
      }
    }
    return headline(sweep);
  };
  const std::string one = headline_for(1);
  EXPECT_TRUE(says(one, " device of 1785.7 img/s that trains "));
  EXPECT_TRUE(says(one, ": 1 configuration, in at most 3 runs. "));
  EXPECT_FALSE(says(one, " each"));
  sweep.rows.push_back(make_long_row("host", 0.02));
  const std::string two = headline_for(2);
  EXPECT_TRUE(says(two, " devices of 1785.7 img/s each that train "));
  EXPECT_TRUE(says(two, ": 2 configurations compared, in at most 3 runs each. "));
}

TEST(SweepStatements, OfSeveralTrainersAreMadeForEachRow) {
  SweepResult sweep = simulated_sweep(0, 3, 0);
  SweepResult other = simulated_sweep(1, 3, 0);
  for (Row& row : other.rows) {
    row.config.num_gpus = 2;
    sweep.rows.push_back(std::move(row));
  }
  sweep.varied.push_back(&find_config_key("num_gpus"));
  summarise(sweep);
  const std::vector<std::string> answer = report::answer_of(sweep);
  ASSERT_EQ(answer.size(), 6U);
  EXPECT_EQ(answer.front(), cost_sentence(sweep, *rows_by_cost(sweep).front()));
}

TEST(SweepStatements, APasteLineSaysTheCostItsSpreadTheMachineAndTheDay) {
  statistics::CostEstimate cost;
  cost.percent = {22.8, 20.8, 58.7, 3, true};
  Environment environment = make_environment();
  EXPECT_EQ(paste_line("queue", cost, environment, false),
            "queue: 22.8 % lost (20.8..58.7), 2 cores, 2026-01-02");
  EXPECT_EQ(paste_line("queue", cost, environment, true),
            "queue: 22.8 % lost (20.8..58.7), 2 cores of a busy machine, 2026-01-02");
  cost.percent = {22.8, 20.8, 24.7, 5};
  environment.usable_cores = 1;
  EXPECT_EQ(paste_line("queue", cost, environment, false),
            "queue: 22.8 % lost (20.8 to 24.7), 1 core, 2026-01-02");
  cost.percent = {22.8, 22.8, 22.8, 1, true};
  EXPECT_EQ(paste_line("queue", cost, environment, false),
            "queue: 22.8 % lost (once), 1 core, 2026-01-02");
}

TEST(SweepStatements, AreSupportedByTheDataAndTheSameInEveryReport) {
  int false_alarms = 0;
  for (std::uint64_t seed = 0; seed < kTries; ++seed) {
    for (const std::int32_t rounds : {1, 2, 3, 5, 8}) {
      for (const double noise : {0.0, 0.002, 0.05, 0.35}) {
        SCOPED_TRACE(fmt::format("seed {}, {} rounds, noise {}", seed, rounds, noise));
        const SweepResult sweep = simulated_sweep(seed, rounds, noise);
        expect_supported(sweep, static_cast<std::size_t>(rounds), false_alarms);
        expect_answer_supported(sweep);
        expect_reports_agree(sweep);
      }
    }
  }
  EXPECT_LE(false_alarms, 9)
      << "of 120 sweeps with noise and enough rounds for a verdict, 3 expected";
}

TEST(SweepStatements, ThreeRoundsThatDifferAreStatedAsTheyAre) {
  // Losses of 20.8, 22.8 and 58.7 %: Student's interval reaches from -58 to 75.
  SweepResult sweep = simulated_sweep(0, 3, 0);
  Row& row = sweep.rows[2];
  const double losses[] = {0.208, 0.587, 0.228};
  for (std::size_t round = 0; round < 3; ++round) {
    RunResult& result = row.repetitions[round].result;
    result.img_per_s = result.sustained_img_per_s = 1e4 * (1 - losses[round]);
  }
  summarise(sweep);
  EXPECT_EQ(format_estimate(row.input_cost->percent, 1), "22.8 (20.8..58.7)");
  EXPECT_EQ(cost_sentence(sweep, row),
            "queue: 20.8 to 58.7 % lost in 3 rounds; they differ, measure again.");
  expect_reports_agree(sweep);
}

TEST(SweepStatements, OneRoundHasNoInterval) {
  const SweepResult sweep = simulated_sweep(0, 1, 0);
  EXPECT_EQ(cost_sentence(sweep, sweep.rows[2]),
            "queue: 37.5 % lost in one round; a verdict takes 3 or more.");
  for (const auto& [name, text] : reports_of(sweep)) {
    EXPECT_FALSE(says(text, "37.5 (37.5")) << name;
  }
}

TEST(SweepStatements, ARateAtTheCeilingCostsNothing) {
  SweepResult sweep = simulated_sweep(0, 3, 0);
  for (Repetition& repetition : sweep.rows[1].repetitions) {  // one batch less was ready at the end
    repetition.result.sustained_img_per_s *= 0.99;
    repetition.result.reserve_start = 3;
    repetition.result.reserve_end = 2;
  }
  summarise(sweep);
  EXPECT_EQ(text_table(sweep).rows[1][2], "0.0 (0.0..0.0)");
}

// ---- isolate
// -------------------------------------------------------------------------------------

struct Isolated {
  std::string text, page;
  nlohmann::json json;
};

Isolated reports_of(const isolate::Isolation& found) {
  std::ostringstream text, page;
  isolate::write_isolation_text(found, text);
  isolate::write_isolation_page(found, page);
  return {seen(text.str()), seen(page.str()), nlohmann::json::parse(to_json(found).dump())};
}

class IsolateStatements : public IsolatorTest {
 protected:
  /// A different machine for each try: noise from none to much, budgets from short to long.
  isolate::Isolation isolate_try(std::uint64_t seed) {
    plan_.config.seed = 1000 + seed;
    plan_.cores = seed % 3 == 0 ? 2 : seed % 3 == 1 ? 4 : 8;
    plan_.budget = seed % 2 == 0 ? 45s : 12s;
    machine_.noise = 0.005;
    machine_.drift = 0;
    machine_.feeder_ms = seed % 4 == 0 ? 12 : 50;  // 6 ms with two threads, or 25
    const double noise = 0.5 * static_cast<double>(seed) / kTries;
    change_ = [noise](RunResult& result) {
      Random random(result.config.seed, result.config.fake_location == "gpu" ? 1 : 2);
      const double factor = 1 + noise * random.uniform(-1, 1);
      for (auto* series : {&result.step_ms, &result.starved_ms, &result.device_idle_ms}) {
        for (double& ms : *series) ms *= factor;
      }
      result.img_per_s /= factor;
      result.sustained_img_per_s /= factor;
    };
    return isolate();
  }

  /// What `report` prints of the saved folder has the figures of `isolate`.
  static void expect_one_estimate(const isolate::Isolation& found, const Isolated& isolated) {
    ASSERT_TRUE(found.cost);
    SweepResult saved = sweep_from_json(to_json(found.measurement.sweep));
    ASSERT_TRUE(saved.steady);
    analysis::restate(saved);
    const std::map<std::string, std::string> reports = reports_of(saved);
    const nlohmann::json json = nlohmann::json::parse(to_json(saved).dump());
    EXPECT_EQ(json, nlohmann::json::parse(to_json(found.measurement.sweep).dump()));
    EXPECT_EQ(json, isolated.json["sweep"]);
    const auto expect_rate = [&](std::size_t index, const char* key,
                                 const statistics::Estimate& rate, const nlohmann::json& said) {
      SCOPED_TRACE(key);
      const Row& row = saved.rows[index];
      EXPECT_TRUE(says(isolated.text, format_estimate(rate, 1)));
      EXPECT_TRUE(
          says(isolated.page, report::fixed_text(rate.value, report::decimals_of(rate, 0))));
      EXPECT_EQ(said["value"], rate.value);
      expect_json(json["runs"][index]["img_per_s"], rate);
      const std::string cell = row.repetitions.size() == 1
                                   ? format_fixed(rate.value, 1) + " (once)"
                                   : format_spread({rate.value, rate.low, rate.high}, 1);
      expect_said(reports, cell);
    };
    const nlohmann::json& cost = isolated.json["cost"];
    expect_rate(found.measurement.ceiling_row, "ceiling", found.cost->ceiling_img_per_s,
                cost["ceiling_img_per_s"]);
    expect_rate(found.measurement.coupled_row, "coupled", found.cost->coupled_img_per_s,
                cost["coupled_img_per_s"]);
    if (found.supply_img_per_s) {
      expect_rate(*found.measurement.supply_row, "supply", *found.supply_img_per_s,
                  isolated.json["supply_img_per_s"]);
    }
    const statistics::Estimate& percent = found.cost->percent;
    const nlohmann::json& of_row = json["runs"][found.measurement.coupled_row]["input_cost"];
    expect_json(of_row["percent"], percent);
    EXPECT_EQ(of_row["verdict"], cost["verdict"]);
    EXPECT_EQ(of_row["ms_per_step"], found.cost->ms_per_step.value);
    EXPECT_EQ(of_row["img_per_s_lost"], found.cost->img_per_s_lost.value);
    if (found.cost->verdict == statistics::Verdict::faster) return;
    expect_said(reports, format_estimate(percent, 1));
    for (const char* name : {"table", "markdown", "html"}) {
      EXPECT_FALSE(says(reports.at(name), "which its cost counts")) << "a second rate";
    }
  }

  void expect_agreement(const isolate::Isolation& found) const {
    const Isolated reports = reports_of(found);
    expect_one_estimate(found, reports);
    for (const std::string& sentence : found.verdict) {
      EXPECT_TRUE(says(reports.text, seen(sentence))) << "the terminal does not say: " << sentence;
      EXPECT_TRUE(says(reports.page, seen(sentence))) << "the page does not say: " << sentence;
    }
    EXPECT_EQ(reports.json["verdict"], nlohmann::json(found.verdict));
    ASSERT_TRUE(found.cost);
    EXPECT_EQ(reports.json["cost"]["percent"]["value"], found.cost->percent.value);
    EXPECT_EQ(reports.json["cost"]["verdict"], to_string(found.cost->verdict));
    expect_one_count_of_blocks(found, reports);
    const bool blames = found.cost->verdict == statistics::Verdict::slower;
    if (!blames) {
      EXPECT_TRUE(reports.json["bottleneck"].is_null());
      EXPECT_FALSE(says(reports.text, "<- "));
      EXPECT_FALSE(says(reports.page, "\"role\">bottleneck<"));
      EXPECT_TRUE(found.predictions.recommendations.empty());
    }
    if (found.cost->verdict == statistics::Verdict::undecided) {
      EXPECT_FALSE(says(reports.text, "too slow"));
      EXPECT_FALSE(says(reports.text, "Neither the producer"));
      EXPECT_FALSE(says(reports.text, "ms longer"));
    }
  }

  static void expect_one_count_of_blocks(const isolate::Isolation& found, const Isolated& reports) {
    const auto all = static_cast<int>(found.measurement.measured_blocks);
    const auto usable = static_cast<int>(found.blocks);
    for (const std::string* text : {&reports.text, &reports.page}) {
      for (const int count : counts_of(*text, "(\\d+) blocks?\\b")) {
        EXPECT_TRUE(count == all || count == usable) << count << " blocks, of " << all;
      }
      EXPECT_TRUE(counts_of(*text, "round (\\d+)").empty()) << "isolate calls them blocks";
      for (const int number : counts_of(*text, "[^a-z]block (\\d+)")) EXPECT_LE(number, all);
    }
    for (const Row& row : found.measurement.sweep.rows) {
      EXPECT_EQ(row.repetitions.size(), found.measurement.measured_blocks);
    }
  }

  void expect_supported(const isolate::Isolation& found) {
    const statistics::CostEstimate& cost = *found.cost;
    ++verdicts_[cost.verdict];
    expect_ordered(cost.percent);
    const bool keeps_up = machine_.feeder_ms < 20;
    if (cost.unbounded_percent >= 0 && cost.rounds.size() % 2 == 1) {
      EXPECT_NEAR(found.cost->ceiling_img_per_s.value - found.cost->coupled_img_per_s.value,
                  cost.img_per_s_lost.value, 1e-6 * found.cost->ceiling_img_per_s.value);
      EXPECT_NEAR(100 * cost.img_per_s_lost.value / found.cost->ceiling_img_per_s.value,
                  cost.percent.value, 1e-6);
    }
    EXPECT_NE(cost.verdict, keeps_up ? statistics::Verdict::slower : statistics::Verdict::equal)
        << found.verdict.front();
    EXPECT_FALSE(mentions(found.verdict, "not reachable")) << "more threads always supply more";
    if (found.predictions.cores_per_device && found.predictions.cores_per_device->reachable) {
      EXPECT_EQ(
          found.predictions.cores_per_device->known,
          found.predictions.cores_per_device->whole <=
                  found.predictions.cores_per_device->measured_to ||
              found.predictions.cores_per_device->thread_counts >= statistics::kThreadCountsForLaw)
          << "below four thread counts nothing is known of more";
    }
  }

  /// If the feeder costs something, this field of the stage to blame is `expected`.
  void expect_all_tries_supported(std::string analysis::StageFinding::*field,
                                  const char* expected) {
    for (std::uint64_t seed = 0; seed < kTries; ++seed) {
      SCOPED_TRACE(fmt::format("seed {}", seed));
      isolate::Isolation found = isolate_try(seed);
      expect_agreement(found);
      expect_supported(found);
      if (found.cost->verdict != statistics::Verdict::slower) continue;
      EXPECT_EQ(blamed(found).*field, expected);
    }
    for (const auto verdict : {statistics::Verdict::slower, statistics::Verdict::equal,
                               statistics::Verdict::undecided}) {
      EXPECT_GT(verdicts_[verdict], 0) << to_string(verdict);
    }
  }

  std::map<statistics::Verdict, int> verdicts_;
};

TEST_F(IsolateStatements, OfAFeederThatDecodesAreSupportedAndTheSameInEveryReport) {
  expect_all_tries_supported(&analysis::StageFinding::name, "decode");
}

TEST_F(IsolateStatements, OfAFeederThatReceivesAreSupportedAndTheSameInEveryReport) {
  plan_.config.fake_location = "zmq-consume";
  plan_.has_producer = true;
  plan_.threads_matter = false;
  machine_.receives = true;
  expect_all_tries_supported(&analysis::StageFinding::workers, "producer");
}

TEST_F(IsolateStatements, ACostOfFewBlocksIsNoIntervalWithoutWidth) {
  machine_.noise = machine_.drift = 0;
  machine_.feeder_ms = 22;  // 11 ms with two threads, 10 ms of them a step
  stop_after_ = 3 + 2 * 5;  // the pilot and two blocks
  const isolate::Isolation& found = isolate();
  ASSERT_TRUE(found.cost);
  EXPECT_EQ(found.blocks, 2U);
  EXPECT_EQ(found.verdict.front(),
            "Undecided: feeding with cpu: 9.1 % lost in 2 blocks; a verdict takes 3 or more.");
  expect_agreement(found);
}

TEST_F(IsolateStatements, TwoBlocksDecideACostThatIsSeenAsWaits) {
  machine_.noise = machine_.drift = 0;
  machine_.feeder_ms = 25;  // 12.5 ms with two threads: a fifth is lost
  stop_after_ = 3 + 2 * 5;  // the pilot and two blocks
  const isolate::Isolation& found = isolate();
  EXPECT_EQ(found.blocks, 2U);
  EXPECT_TRUE(says(found.verdict.front(), "input costs 20.0 % (in each of 2 blocks)"));
  expect_agreement(found);
}

}  // namespace
}  // namespace penstock
