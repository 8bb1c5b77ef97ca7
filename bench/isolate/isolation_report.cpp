// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "bench/analysis/cost.h"
#include "bench/config/training_loop.h"
#include "bench/isolate/isolation_json.h"
#include "bench/isolate/verdict.h"
#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"
#include "bench/record/statistics.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/pages/page.h"
#include "bench/report/pages/run_views.h"
#include "bench/report/report.h"
#include "bench/sweep/result_folder.h"
#include "dataflow/machine/output_file.h"

namespace penstock::isolate {
namespace {

using document::Block, document::Document, document::List, document::Paragraphs, document::Section,
    document::Table, document::Tiles, document::Verbatim, document::Verdict;

// ---- tables and lines that the text and the page share --------------------------

std::string text_of(const std::optional<statistics::Estimate>& estimate, int decimals) {
  return estimate ? format_estimate(*estimate, decimals) : "-";
}

/// Where a batch's time goes on its way from the producer.
Table delivery_table(const std::optional<DeliveryFinding>& delivery) {
  Table table{{{"a batch's time"}, {"side"}, {"ms", true}, {"%", true}}, {}};
  if (!delivery || delivery->parts.empty()) return table;
  table.columns[2].name = fmt::format("ms ({})", ends_of(delivery->parts.front().ms));
  for (const DeliveryPart& part : delivery->parts) {
    table.rows.push_back({part.name, std::string(to_string(part.side)), format_estimate(part.ms, 2),
                          format_fixed(part.percent, 0)});
  }
  return table;
}

/// The rate with queues of other depths, replayed from measured times.
Table depth_table(const std::vector<Prediction>& depths) {
  Table table{{{"queue depth (replayed)"}, {"img/s", true}}, {}};
  for (const Prediction& depth : depths) {
    table.rows.push_back(
        {depth.change.empty() ? "as measured" : depth.change, format_fixed(depth.img_per_s, 1)});
  }
  return table;
}

/// What devices of other rates would train with this feeder: round rates around its supply.
Table device_table(const Isolation& found) {
  constexpr std::ptrdiff_t kBelow = 2, kRows = 5;
  if (!supply_decides(found)) return {};
  const statistics::Estimate& supply = *found.supply_img_per_s;
  if (!(supply.value > 0) || !std::isfinite(supply.value)) return {};
  const bool several = found.measurement.coupled().config.num_gpus > 1;
  Table table{{{several ? "if all devices train img/s" : "if the device trains img/s", true},
               {"with this feeder img/s", true},
               {"cost %", true},
               {"slower"}},
              {}};
  const double decade = std::pow(10, std::floor(std::log10(supply.value)) - 1);
  std::vector<double> rates;
  for (const double step : {1, 2, 5, 10, 20, 50, 100, 200, 500}) rates.push_back(step * decade);
  const auto first_above = std::ranges::upper_bound(rates, supply.value) - rates.begin();
  rates.erase(rates.begin(), rates.begin() + first_above - kBelow);
  rates.resize(kRows);
  const int decimals = supply.value < 10 ? 1 : 0;
  const double own = found.cost->ceiling_img_per_s.value;
  bool has_own = false;
  const auto add_own = [&] {
    has_own = true;
    table.rows.push_back({format_fixed(own, decimals),
                          format_fixed(found.cost->coupled_img_per_s.value, decimals),
                          format_fixed(found.cost->percent.value, 0), "measured here"});
  };
  for (const double rate : rates) {
    if (!has_own && own <= rate) add_own();
    const double trained = std::min(rate, supply.value);
    table.rows.push_back({format_fixed(rate, decimals), format_fixed(trained, decimals),
                          format_fixed(100 * (1 - trained / rate), 0),
                          rate > supply.high  ? "the feeder"
                          : rate < supply.low ? "the device"
                                              : "either"});
  }
  if (!has_own) add_own();
  return table;
}

/// The line of a traceback that says what happened.
std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  const std::size_t before = text.rfind('\n', end);
  return text.substr(before + 1, end - before);
}

/// What each setting of --vary reached.
Table setting_table(const std::optional<VariationFinding>& variation) {
  if (!variation) return {};
  Table table{{{"setting"}, {"img/s", true}, {""}}, {}};
  for (std::size_t i = 0; i < variation->settings.size(); ++i) {
    const SettingFinding& setting = variation->settings[i];
    const std::string note = variation->best == i ? "<- best" : "";
    const bool is_present = setting.change.empty() && setting.img_per_s;
    table.rows.push_back(
        {!setting.change.empty()  ? setting.change
         : setting.values.empty() ? "the present setting"
                                  : fmt::format("{} (the present setting)", setting.values),
         is_present ? format_fixed(setting.img_per_s->value, 0) : text_of(setting.img_per_s, 0),
         setting.unavailable.empty() ? note : last_line(setting.unavailable)});
  }
  return table;
}

/// The rungs that were measured: what each adds, and what it supplies.
Table ladder_table(const std::vector<RungFinding>& ladder) {
  Table table{{{"rung"},
               {"adds"},
               {"added ms", true},
               {"lost to the ceiling %", true},
               {"supply img/s", true}},
              {}};
  for (const RungFinding& rung : ladder) {
    if (!rung.unavailable.empty()) continue;
    table.rows.push_back({rung.branch ? rung.name + " (a branch)" : rung.name, rung.adds,
                          text_of(rung.added_ms, 2),
                          rung.cost ? format_estimate(rung.cost->percent, 1) : "-",
                          text_of(rung.supply_img_per_s, 0)});
  }
  return table;
}

/// What `isolate` doubts about the findings, and about the sweep behind them.
std::vector<std::string> warnings_of(const Isolation& found) {
  std::vector<std::string> warnings = found.warnings;
  const std::vector<std::string>& of_sweep = found.measurement.sweep.warnings;
  warnings.insert(warnings.end(), of_sweep.begin(), of_sweep.end());
  return warnings;
}

/// The cost in a line; empty without a cost.
std::string line_to_paste(const Isolation& found) {
  if (!found.cost) return "";
  return paste_line(feeder_label(found.measurement.coupled().config), *found.cost,
                    found.measurement.sweep.environment, is_crowded(found.measurement));
}

// ---- the text --------------------------------------------------------------

constexpr std::size_t kWidth = 100;

std::string percent(double value) { return format_fixed(value, 0); }

/// Formats a time, a rate or a size without needless digits.
std::string short_number(double value) { return format_fixed(value, value < 10 ? 2 : 0); }

Table rate_table(const Isolation& found) {
  if (!found.cost) return {};
  const Row& ceiling = found.measurement.ceiling();
  const std::string feeder = feeder_label(found.measurement.coupled().config);
  Table table{
      {{}, {fmt::format("img/s ({})", ends_of(found.cost->percent)), true}, {"blocks", true}}, {}};
  const auto add = [&](const std::string& name, const statistics::Estimate& rate) {
    table.rows.push_back({name, format_estimate(rate, 1), std::to_string(rate.samples)});
  };
  add("ceiling (" + ceiling.config.fake_location + ")", found.cost->ceiling_img_per_s);
  if (found.supply_img_per_s) add("supply (" + feeder + " alone)", *found.supply_img_per_s);
  add("coupled (" + feeder + ")", found.cost->coupled_img_per_s);
  add("lost", found.cost->img_per_s_lost);
  return table;
}

Table cost_table(const std::optional<analysis::InputCostFinding>& cost) {
  if (!cost) return {};
  const analysis::CostSplit& split = cost->split;
  return {
      {{"per step"}, {fmt::format("ms ({})", ends_of(cost->percent)), true}},
      {{"input cost", format_estimate(split.total_ms, 2)},
       {"  starvation (no batch was there)", format_estimate(split.starvation_ms, 2)},
       {"  transfer (its copy was not done)", format_estimate(split.transfer_ms, 2)},
       {"  interference (the step itself got slower)", format_estimate(split.interference_ms, 2)},
       {"  residual (unexplained)", format_fixed(split.residual_ms, 2)}}};
}

Table stage_table(const analysis::Diagnosis& diagnosis) {
  Table table{{{"stage"},
               {"workers", true},
               {"busy %", true},
               {"waits in %", true},
               {"out %", true},
               {"max img/s", true},
               {"CPU us/img", true},
               {"bytes/img", true},
               {"", true}},
              {}};
  for (std::size_t i = 0; i < diagnosis.stages.size(); ++i) {
    const analysis::StageFinding& stage = diagnosis.stages[i];
    const bool is_bottleneck = diagnosis.bottleneck == i;
    const bool is_next = diagnosis.bottleneck && diagnosis.next_bottleneck == i;
    const std::string mark = is_bottleneck ? "<- bottleneck" : is_next ? "<- then" : "";
    table.rows.push_back(
        {stage.name, stage.workers, percent(stage.utilisation_percent),
         percent(stage.waits_in_percent), percent(stage.waits_out_percent),
         stage.capacity_img_per_s > 0 ? format_fixed(stage.capacity_img_per_s, 0) : "?",
         stage.cpu_us_per_image > 0 ? short_number(stage.cpu_us_per_image) : "?",
         format_fixed(stage.bytes_per_image, 0), mark});
  }
  return table;
}

/// Queue levels of the last usable coupled run.
Table queue_table(const Row& coupled) {
  const std::vector<const RunResult*> runs = analysis::usable_runs(coupled);
  Table table{
      {{"queue"}, {"slots", true}, {"mean filled", true}, {"empty %", true}, {"full %", true}}, {}};
  // Beside a loader, rings of one slot hold what the loop asked for: no queue of a pipeline.
  if (runs.empty() || has_loader(coupled.config)) return table;
  for (const QueueUse& queue : runs.back()->queues) {
    table.rows.push_back({queue.name, std::to_string(queue.slots),
                          format_fixed(queue.mean_filled, 2), percent(queue.empty_percent),
                          percent(queue.full_percent)});
  }
  return table;
}

Table curve_table(const Predictions& predictions) {
  Table table{{{"feeder threads"}, {"supply img/s", true}, {"scaling law", true}}, {}};
  if (!predictions.law) return table;
  for (const statistics::ScalingPoint& point : predictions.supply_curve) {
    table.rows.push_back({format_fixed(point.threads, 0),
                          format_fixed(spread(point.img_per_s).median, 1),
                          format_fixed(predictions.law->rate(point.threads), 1)});
  }
  return table;
}

/// Without the column "adds", which terminals have no room for.
Table narrow_ladder_table(const std::vector<RungFinding>& ladder) {
  Table table = ladder_table(ladder);
  table.columns.erase(table.columns.begin() + 1);
  for (std::vector<std::string>& row : table.rows) row.erase(row.begin() + 1);
  return table;
}

/// How the figures were measured: blocks, why they ended, warm-up, noise.
Document method(const Isolation& found) {
  std::size_t kept = 0, dropped = 0;
  for (const Row* row : {&found.measurement.ceiling(), &found.measurement.coupled()}) {
    for (const analysis::SteadyRun& run : analysis::steady_runs(*row)) {
      kept += run.steps;
      dropped += run.dropped;
    }
  }
  std::string text = fmt::format(
      "{} of fresh processes in random order; ended because {}. Warm-up (MSER-5): {} of {} steps "
      "left out.",
      blocks_text(found), found.measurement.stopped_because, dropped, kept + dropped);
  const std::vector<BlockNoise> noises = noise_of_blocks(found.measurement);
  if (!noises.empty()) {
    const auto most = [&](auto figure) {
      return std::max(0.0, std::ranges::max(noises, {}, figure).*figure);
    };
    text += fmt::format(
        " Beside it, others used up to {:.1f} % of the cores and the hypervisor "
        "took up to {:.1f} %.",
        most(&BlockNoise::foreign_cpu_percent), most(&BlockNoise::steal_percent));
  }
  if (found.diagnosis.instrumentation_percent > 0) {
    text += fmt::format(" Timing the stages took {:.2f} % of their CPU time.",
                        found.diagnosis.instrumentation_percent);
  }
  return {Paragraphs{{text}}, Verbatim{"To paste: ", line_to_paste(found)},
          Verbatim{"Again: ", found.measurement.sweep.command}};
}

// ---- the page --------------------------------------------------------------

std::string_view tone_of(const std::optional<analysis::InputCostFinding>& cost) {
  if (!cost) return "open";
  if (cost->verdict == statistics::Verdict::slower) return "bad";
  return cost->verdict == statistics::Verdict::equal ? "good" : "open";
}

Verdict answer_of(const Isolation& found) {
  return {.lines = {{tone_of(found.cost), found.verdict.front()}}, .answers = true};
}

/// What the answer rests on: the sentences below the headline.
std::vector<std::string> evidence_of(const Isolation& found) {
  return {found.verdict.begin() + 1, found.verdict.end()};
}
Verdict lines_of(const std::vector<std::string>& sentences) {
  Verdict verdict;
  for (const std::string& sentence : sentences) verdict.lines.push_back({"open", sentence});
  return verdict;
}

Tiles rates_of(const Isolation& isolation) {
  Tiles result;
  const auto add = [&](std::string name, const statistics::Estimate& estimate,
                       std::string_view unit, int decimals) {
    const int shown = report::decimals_of(estimate, decimals);
    result.tiles.push_back({std::move(name),
                            fmt::format("{} {}", report::fixed_text(estimate.value, shown), unit),
                            report::interval_text(estimate, shown)});
  };
  if (isolation.cost) {
    add("The device alone", isolation.cost->ceiling_img_per_s, "img/s", 0);
    add("Your training", isolation.cost->coupled_img_per_s, "img/s", 0);
  }
  if (isolation.supply_img_per_s) {
    const bool is_loader = !isolation.measurement.coupled().config.loop.empty();
    add(is_loader ? "The loader alone" : "The feeder alone", *isolation.supply_img_per_s, "img/s",
        0);
  }
  if (isolation.cost && isolation.cost->verdict == statistics::Verdict::slower) {
    add("Added to each step", isolation.cost->ms_per_step, "ms", 2);
  }
  return result;
}

std::string basis_of(const Isolation& isolation) {
  std::string text = blocks_text(isolation) + " of fresh processes in random order";
  if (!isolation.measurement.stopped_because.empty()) {
    text += "; ended because " + isolation.measurement.stopped_because;
  }
  if (!isolation.cost) return text + ".";
  return fmt::format("{}. In parentheses: {}.", text, ends_of(isolation.cost->percent));
}

Paragraphs soft(std::string text) { return {{std::move(text)}, "", document::Look::soft}; }

Section settings_of(const std::optional<VariationFinding>& variation) {
  if (!variation) return {};
  return {"Settings that were tried",
          {setting_table(variation),
           soft(fmt::format("From {} block{} of all settings. The best one was then measured again "
                            "beside the present one, in other blocks.",
                            variation->blocks, variation->blocks == 1 ? "" : "s"))}};
}

Section code_of(const std::optional<CodeProfile>& code) {
  constexpr std::size_t kMost = 12;
  if (!code) return {};
  Table table{{{"code that loads samples"}, {"% of their time", true}}, {}};
  for (const CodeShare& share : code->shares) {
    if (table.rows.size() == kMost) break;
    table.rows.push_back({share.name, format_fixed(share.percent, 1)});
  }
  return {"Where the time for samples goes",
          {std::move(table),
           soft("Transforms and functions of the data set are timed, each without the timed calls "
                "inside it. Lines of your files are from samples of the stack.")}};
}

Section ladder_of(const std::vector<RungFinding>& ladder) {
  std::vector<std::string> notes = unmeasured_rungs(ladder);
  if (std::ranges::any_of(ladder, &RungFinding::branch)) {
    notes.emplace_back("Branches are compared with the ceiling only.");
  }
  return {"The ladder", {ladder_table(ladder), List{"", std::move(notes)}}};
}

/// What a delivery's table leaves out.
Paragraphs gaps_of(const std::optional<DeliveryFinding>& delivery) {
  if (!delivery || delivery->not_known.empty()) return {};
  return soft(fmt::format("Not known: {}.", delivery->not_known));
}

std::string role_of(const analysis::Diagnosis& diagnosis, std::size_t stage) {
  if (diagnosis.bottleneck == stage) return "bottleneck";
  return diagnosis.next_bottleneck == stage ? "next" : "";
}

Section stages_of(const analysis::Diagnosis& diagnosis) {
  if (diagnosis.stages.empty()) return {};
  Table table{{{"stage"},
               {"run by"},
               {"could do img/s", true},
               {"working %", true},
               {"waiting for input %", true},
               {"waiting for room %", true},
               {"CPU us/image", true},
               {"us/image", true},
               {"kB/image", true},
               {"role"}},
              {}};
  for (std::size_t i = 0; i < diagnosis.stages.size(); ++i) {
    const analysis::StageFinding& stage = diagnosis.stages[i];
    table.rows.push_back(
        {stage.name, stage.workers,
         stage.capacity_img_per_s > 0 ? report::number_text(stage.capacity_img_per_s) : "-",
         report::fixed_text(stage.utilisation_percent, 0),
         report::fixed_text(stage.waits_in_percent, 0),
         report::fixed_text(stage.waits_out_percent, 0),
         report::number_text(stage.cpu_us_per_image), report::number_text(stage.wall_us_per_image),
         report::number_text(stage.bytes_per_image / 1e3), role_of(diagnosis, i)});
  }
  return {"Stages from source to device",
          {std::move(table),
           soft(fmt::format("{} Timing the stages took {} % of the processor time spent in them.",
                            report::stage_terms(),
                            report::number_text(diagnosis.instrumentation_percent, 2)))}};
}

std::string or_dash(const std::optional<double>& value) {
  return value ? report::fixed_text(*value, 1) : "-";
}

Section noise_section(const std::vector<BlockNoise>& noise) {
  const bool throttled = std::ranges::any_of(noise, &BlockNoise::throttled);
  Table table{{{"block"},
               {"taken by the hypervisor %", true},
               {"other processes %", true},
               {"CPU pressure %", true},
               {"I/O pressure %", true},
               {"MHz", true},
               {"throttled"}},
              {}};
  for (const BlockNoise& block : noise) {
    const bool clocked = block.mhz_low && block.mhz_high;
    table.rows.push_back({fmt::format("block {}", block.block + 1),
                          report::fixed_text(block.steal_percent, 1),
                          report::fixed_text(block.foreign_cpu_percent, 1),
                          or_dash(block.cpu_pressure_percent), or_dash(block.io_pressure_percent),
                          clocked ? fmt::format("{} to {}", report::fixed_text(*block.mhz_low, 0),
                                                report::fixed_text(*block.mhz_high, 0))
                                  : "-",
                          block.throttled ? "yes" : "no"});
  }
  return {std::string("Noise around each block") + (throttled ? ": processors were throttled" : ""),
          {std::move(table)},
          /*collapsed=*/true};
}

// ---- the files -------------------------------------------------------------

/// The page about one feeder replaces the page about a sweep.
constexpr std::string_view kSweepPage = "html";

void write_report(const report::ReportEntry& report, const SweepResult& sweep,
                  const std::filesystem::path& folder) {
  std::ostringstream text;
  report.write(sweep, {}, text);
  replace_file(folder / report.file, text.str());
}

}  // namespace

void write_isolation_text(const Isolation& found, std::ostream& out) {
  Document document{
      Paragraphs{{found.verdict.front()}},
      List{"What would help, best first:", texts_of(found.predictions.recommendations)},
      Paragraphs{evidence_of(found)},
      List{"Doubts:", warnings_of(found)},
      rate_table(found),
      cost_table(found.cost),
      delivery_table(found.delivery),
      stage_table(found.diagnosis),
      queue_table(found.measurement.coupled()),
      device_table(found),
      curve_table(found.predictions),
      depth_table(found.predictions.depths),
      narrow_ladder_table(found.ladder),
      Paragraphs{unmeasured_rungs(found.ladder)},
      setting_table(found.variation)};
  for (document::Block& block : method(found)) document.push_back(std::move(block));
  document::write_text(in_unit_of(found.measurement.sweep, std::move(document)), out, kWidth);
}

void write_isolation_page(const Isolation& isolation, std::ostream& out) {
  IsolationFigures figures = figures_of(isolation);
  const Predictions& predictions = isolation.predictions;
  Table depths = depth_table(predictions.depths);
  Section other_depths{"What other queue depths would do", {}, /*collapsed=*/true};
  if (!depths.rows.empty()) {
    other_depths.blocks = {std::move(depths),
                           soft("By replaying the measured times of feeder and device.")};
  }
  Document page{answer_of(isolation),
                std::move(figures.pipeline),
                List{"What would help, best first:", texts_of(predictions.recommendations)},
                lines_of(evidence_of(isolation)),
                rates_of(isolation),
                soft(basis_of(isolation)),
                Paragraphs{warnings_of(isolation), "", document::Look::warning},
                std::move(figures.supply),
                code_of(isolation.code),
                settings_of(isolation.variation),
                std::move(figures.curve),
                device_table(isolation),
                std::move(figures.waterfall),
                std::move(figures.split),
                std::move(figures.delivery),
                delivery_table(isolation.delivery),
                gaps_of(isolation.delivery),
                std::move(figures.supply_demand),
                std::move(figures.steps),
                std::move(figures.queues),
                std::move(other_depths),
                ladder_of(isolation.ladder),
                stages_of(isolation.diagnosis),
                noise_section(noise_of_blocks(isolation.measurement)),
                Section{"To paste", {Verbatim{"", line_to_paste(isolation)}}},
                report::repetitions_of(isolation.measurement.sweep, "block")};
  for (Block& block : report::surroundings_of(isolation.measurement.sweep)) {
    page.push_back(std::move(block));
  }
  report::write_page("What input costs this trainer",
                     in_unit_of(isolation.measurement.sweep, std::move(page)), out);
}

void write_runs(const SweepResult& sweep, const std::filesystem::path& folder) {
  write_report(find_entry(report::report_table(), "json"), sweep, folder);
}

void write_isolation_files(const Isolation& found, const std::filesystem::path& folder) {
  replace_file(folder / "isolation.json", to_json(found).dump(1) + "\n");
  for (const report::ReportEntry* report : report::report_table().entries) {
    if (report->file.empty() || report->name == kSweepPage) continue;
    write_report(*report, found.measurement.sweep, folder);
  }
  std::ostringstream page;
  write_isolation_page(found, page);
  replace_file(folder / "report.html", page.str());
  write_isolation_figures(found, folder / "figures");
}

}  // namespace penstock::isolate
