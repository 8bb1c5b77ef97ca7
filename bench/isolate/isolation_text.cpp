// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_text.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "bench/isolate/steady.h"
#include "bench/isolate/verdict.h"
#include "bench/record/report_text.h"
#include "bench/record/statistics.h"

namespace penstock::isolate {
namespace {

constexpr std::size_t kWidth = 100;

/// Wraps `text` between words; lines after the first begin with `indent`.
std::string wrapped(const std::string& text, const std::string& indent) {
  std::istringstream words(text);
  std::string result, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
      result += line + "\n";
      line = indent;
      line += word;
      continue;
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  return result + line + "\n";
}

/// A table. The first column is left-aligned; the others are right-aligned with their headings.
class Columns {
 public:
  explicit Columns(std::vector<std::string> heads) { lines_.push_back(std::move(heads)); }
  void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  void write(std::ostream& out) const {
    std::vector<std::size_t> widths;
    for (const auto& line : lines_) {
      widths.resize(std::max(widths.size(), line.size()));
      for (std::size_t i = 0; i < line.size(); ++i) {
        widths[i] = std::max(widths[i], line[i].size());
      }
    }
    for (const auto& line : lines_) {
      std::string text = fmt::format("{:<{}}", line.front(), widths.front());
      for (std::size_t i = 1; i < line.size(); ++i) {
        text += fmt::format("  {:>{}}", line[i], widths[i]);
      }
      text.erase(text.find_last_not_of(' ') + 1);
      fmt::print(out, "{}\n", text);
    }
    fmt::print(out, "\n");
  }

 private:
  std::vector<std::vector<std::string>> lines_;
};

std::string percent(double value) { return format_fixed(value, 0); }

/// Formats a time, a rate or a size without needless digits.
std::string short_number(double value) { return format_fixed(value, value < 10 ? 2 : 0); }

void write_rates(const Isolation& found, std::ostream& out) {
  if (!found.cost) return;
  const Row& ceiling = found.measurement.ceiling();
  const Row& coupled = found.measurement.coupled();
  const std::string feeder = feeder_label(coupled.config);
  Columns columns({"", fmt::format("img/s ({})", ends_of(found.cost->percent)), "blocks"});
  const auto line = [&](const std::string& name, const statistics::Estimate& rate) {
    columns.add({name, format_estimate(rate, 1), std::to_string(rate.samples)});
  };
  line("ceiling (" + ceiling.config.fake_location + ")", found.cost->ceiling_img_per_s);
  if (found.supply_img_per_s) line("supply (" + feeder + " alone)", *found.supply_img_per_s);
  line("coupled (" + feeder + ")", found.cost->coupled_img_per_s);
  line("lost", found.cost->img_per_s_lost);
  columns.write(out);
}

void write_cost(const std::optional<InputCostFinding>& cost, std::ostream& out) {
  if (!cost) return;
  const CostSplit& split = cost->split;
  Columns columns({"per step", fmt::format("ms ({})", ends_of(cost->percent))});
  columns.add({"input cost", format_estimate(split.total_ms, 2)});
  columns.add({"  starvation", format_estimate(split.starvation_ms, 2)});
  columns.add({"  transfer", format_estimate(split.transfer_ms, 2)});
  columns.add({"  interference", format_estimate(split.interference_ms, 2)});
  columns.add({"  residual", format_fixed(split.residual_ms, 2)});
  columns.write(out);
}

void write_stages(const Diagnosis& diagnosis, std::ostream& out) {
  if (diagnosis.stages.empty()) return;
  Columns columns({"stage", "workers", "busy %", "waits in %", "out %", "max img/s", "CPU us/img",
                   "bytes/img", ""});
  for (std::size_t i = 0; i < diagnosis.stages.size(); ++i) {
    const StageFinding& stage = diagnosis.stages[i];
    const bool is_bottleneck = diagnosis.bottleneck == i;
    const bool is_next = diagnosis.bottleneck && diagnosis.next_bottleneck == i;
    const std::string mark = is_bottleneck ? "<- bottleneck" : is_next ? "<- then" : "";
    columns.add({stage.name, stage.workers, percent(stage.utilisation_percent),
                 percent(stage.waits_in_percent), percent(stage.waits_out_percent),
                 stage.capacity_img_per_s > 0 ? format_fixed(stage.capacity_img_per_s, 0) : "?",
                 short_number(stage.cpu_us_per_image), format_fixed(stage.bytes_per_image, 0),
                 mark});
  }
  columns.write(out);
}

void write_delivery(const std::optional<DeliveryFinding>& delivery, std::ostream& out) {
  if (!delivery) return;
  const std::vector<DeliveryPart>& parts = delivery->parts;
  const std::string ends(parts.empty() ? "" : ends_of(parts.front().ms));
  Columns columns({"a batch's time", "side", fmt::format("ms ({})", ends), "%"});
  for (const DeliveryPart& part : parts) {
    columns.add({part.name, part.side, format_estimate(part.ms, 2), percent(part.percent)});
  }
  columns.write(out);
}

/// Queue levels of the last usable coupled run.
void write_queues(const Row& coupled, std::ostream& out) {
  const RunResult* last = nullptr;
  for (const Repetition& repetition : coupled.repetitions) {
    if (is_usable(repetition.result)) last = &repetition.result;
  }
  if (last == nullptr || last->queues.empty()) return;
  Columns columns({"queue", "slots", "mean filled", "empty %", "full %"});
  for (const QueueUse& queue : last->queues) {
    columns.add({queue.name, std::to_string(queue.slots), format_fixed(queue.mean_filled, 2),
                 percent(queue.empty_percent), percent(queue.full_percent)});
  }
  columns.write(out);
}

void write_curve(const Predictions& predictions, std::ostream& out) {
  if (predictions.supply_curve.empty() || !predictions.law) return;
  Columns columns({"feeder threads", "supply img/s", "scaling law"});
  for (const statistics::ScalingPoint& point : predictions.supply_curve) {
    columns.add({format_fixed(point.threads, 0), format_fixed(spread(point.img_per_s).median, 1),
                 format_fixed(predictions.law->rate(point.threads), 1)});
  }
  columns.write(out);
}

void write_depths(const std::vector<Prediction>& depths, std::ostream& out) {
  if (depths.empty()) return;
  Columns columns({"queue depth (replayed)", "img/s"});
  for (const Prediction& depth : depths) {
    columns.add(
        {depth.change.empty() ? "as measured" : depth.change, format_fixed(depth.img_per_s, 1)});
  }
  columns.write(out);
}

void write_ladder(const std::vector<RungFinding>& ladder, std::ostream& out) {
  if (ladder.empty()) return;
  Columns columns({"rung", "cost %", "added ms", "supply img/s"});
  bool any = false;
  for (const RungFinding& rung : ladder) {
    if (!rung.unavailable.empty()) continue;
    any = true;
    columns.add({rung.branch ? rung.name + " (a branch)" : rung.name,
                 rung.cost ? format_estimate(rung.cost->percent, 1) : "-",
                 rung.added_ms ? format_estimate(*rung.added_ms, 2) : "-",
                 rung.supply_img_per_s ? format_estimate(*rung.supply_img_per_s, 0) : "-"});
  }
  if (any) columns.write(out);
  for (const std::string& line : unmeasured_rungs(ladder)) {
    fmt::print(out, "{}", wrapped(line, "  "));
  }
}

void write_list(const char* title, const std::vector<std::string>& sentences, std::ostream& out) {
  if (sentences.empty()) return;
  fmt::print(out, "{}\n", title);
  for (const std::string& sentence : sentences) {
    fmt::print(out, "{}", wrapped("- " + sentence, "  "));
  }
  fmt::print(out, "\n");
}

/// How the figures were measured: blocks, why they ended, warm-up, noise.
void write_method(const Isolation& found, std::ostream& out) {
  std::size_t kept = 0, dropped = 0;
  for (const Row* row : {&found.measurement.ceiling(), &found.measurement.coupled()}) {
    for (const Repetition& repetition : row->repetitions) {
      if (!is_usable(repetition.result)) continue;
      const SteadyRun run = steady_state(repetition.result);
      kept += run.steps;
      dropped += run.dropped;
    }
  }
  std::string text = fmt::format(
      "{} of fresh processes in random order; ended because {}. Warm-up (MSER-5): {} of {} steps "
      "left out.",
      blocks_text(found.measurement), found.measurement.stopped_because, dropped, kept + dropped);
  double steal = 0, foreign = 0;
  const std::vector<BlockNoise> noises = noise_of_blocks(found.measurement);
  for (const BlockNoise& noise : noises) {
    steal = std::max(steal, noise.steal_percent);
    foreign = std::max(foreign, noise.foreign_cpu_percent);
  }
  if (!noises.empty()) {
    text += fmt::format(
        " Beside it, others used up to {:.1f} % of the cores and the hypervisor "
        "took up to {:.1f} %.",
        foreign, steal);
  }
  if (found.diagnosis.instrumentation_percent > 0) {
    text += fmt::format(" Timing the stages took {:.2f} % of their CPU time.",
                        found.diagnosis.instrumentation_percent);
  }
  fmt::print(out, "{}", wrapped(text, ""));
  if (found.cost) {
    fmt::print(out, "To paste: {}\n",
               paste_line(feeder_label(found.measurement.coupled().config), *found.cost,
                          found.measurement.sweep.environment));
  }
  fmt::print(out, "Again: {}\n", found.measurement.sweep.command);
}

}  // namespace

void write_isolation_text(const Isolation& found, std::ostream& out) {
  bool first = true;
  for (const std::string& sentence : found.verdict) {
    fmt::print(out, "{}{}", wrapped(sentence, ""), std::exchange(first, false) ? "\n" : "");
  }
  fmt::print(out, "\n");
  write_rates(found, out);
  write_cost(found.cost, out);
  write_delivery(found.delivery, out);
  write_stages(found.diagnosis, out);
  write_queues(found.measurement.coupled(), out);
  write_curve(found.predictions, out);
  write_depths(found.predictions.depths, out);
  write_ladder(found.ladder, out);
  write_list("What would help, best first:", texts_of(found.predictions.recommendations), out);
  std::vector<std::string> warnings = found.warnings;
  warnings.insert(warnings.end(), found.measurement.sweep.warnings.begin(),
                  found.measurement.sweep.warnings.end());
  write_list("Doubts:", warnings, out);
  write_method(found, out);
}

}  // namespace penstock::isolate
