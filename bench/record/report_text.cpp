// SPDX-License-Identifier: Apache-2.0
#include "bench/record/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/record/step_parts.h"
#include "dataflow/entry.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

struct StatusText {
  Status status;
  std::string_view meaning;
};
constexpr std::array kStatusTexts = {
    StatusText{Status::skipped,
               "this machine or this program lacks what the row needs, or the time budget ended"},
    StatusText{Status::failed, "no repetition completed; see the note"},
    StatusText{Status::partial,
               "some repetitions failed or were cut short; the figures are those of the others"},
    StatusText{Status::draining,
               "batches made before the window dominated the result, or may have, so the input "
               "cost is unknown; measure more steps (--num-batches)"},
};

/// The values over all rows: "64", "1, 2 or 4".
template <typename Get>
std::string values_over(const SweepResult& sweep, Get get) {
  std::vector<std::string> values;
  for (const Row& row : sweep.rows) {
    const bool unresolved = row.config.batch_size == 0 && sweep.rows.front().config.batch_size != 0;
    const std::string value = get(row.config);
    const bool known = std::ranges::find(values, value) != values.end();
    if (!unresolved && !known) values.push_back(value);
  }
  const std::string last = values.back();
  values.pop_back();
  return values.empty() ? last : join(values) + " or " + last;
}

std::string values_of(const SweepResult& sweep, std::string_view key) {
  return values_over(sweep, find_config_key(key).get);
}

/// " of 1785.7 img/s", if all rows have the same rate.
std::string device_rate(const SweepResult& sweep) {
  double rate = 0;
  for (const Row& row : sweep.rows) {
    for (const Repetition& repetition : row.repetitions) {
      const auto fact = fact_of(repetition.result, "emulated_img_per_s");
      if (!fact) continue;
      if (rate != 0 && rate != *fact) return "";
      rate = *fact;
    }
  }
  return rate == 0 ? "" : fmt::format(" of {:.1f} img/s", rate);
}

/// The median over the repetitions that took steps, or "-".
std::string device_idle_of(const Row& row) {
  std::vector<double> percents;
  for (const Repetition& repetition : row.repetitions) {
    const RunResult& result = repetition.result;
    if (!result.step_ms.empty()) percents.push_back(result.device_idle_percent);
  }
  return percents.empty() ? "-" : format_fixed(median(percents), 1);
}

std::string count(std::size_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string_view device_of(const Row& row) {
  return all_devices(row.config) == 1 ? "the device" : "the devices";
}

/// "20.8 to 58.7 %", or "25.0 %" if both ends print alike.
std::string range_text(const statistics::Estimate& percent) {
  const std::string low = format_fixed(percent.low, 1), high = format_fixed(percent.high, 1);
  return low == high ? low + " %" : fmt::format("{} to {} %", low, high);
}

std::string cost_cell(const statistics::CostEstimate& cost) {
  if (cost.verdict != statistics::Verdict::faster) return format_estimate(cost.percent, 1);
  return fmt::format("faster by {}", format_fixed(-cost.unbounded_percent, 1));
}

/// Names the rate behind the cost, if it is not the rate in the table.
std::string kept_up_note(const SweepResult& sweep, const Row& row) {
  if (sweep.steady) return "";  // it is the rate in the table
  std::vector<double> rates;
  for (const Repetition& repetition : row.repetitions) {
    if (repetition.result.status == Status::ok) {
      rates.push_back(kept_up_img_per_s(repetition.result));
    }
  }
  if (!row.input_cost || !row.img_per_s || rates.empty()) return "";
  const std::string kept_up = format_fixed(median(rates), 1);
  if (kept_up == format_fixed(row.img_per_s->median, 1)) return "";
  return fmt::format("the feeder kept up {} img/s, which its cost counts", kept_up);
}

/// Remarkable facts about a row, each once.
std::vector<std::string> notes_of_row(const SweepResult& sweep, const Row& row) {
  std::vector<std::string> notes;
  const auto add = [&](std::string text) {
    const bool known = std::ranges::find(notes, text) != notes.end();
    if (!text.empty() && !known) notes.push_back(std::move(text));
  };
  const std::string& why = row.reason.empty() ? row.unresolved : row.reason;
  const bool costs = !row.is_ceiling && !row.input_cost && !why.empty();
  const bool failed = row.status == Status::failed;
  add(costs && !failed ? "no cost is known, " + why : failed ? "failed: " + why : row.reason);
  add(kept_up_note(sweep, row));
  const auto ran = static_cast<std::int32_t>(row.repetitions.size());
  if (ran > 0 && ran < sweep.repetitions && row.unavailable.empty()) {
    add(fmt::format("{} of {} repetitions ran", ran, sweep.repetitions));
  }
  if (ran == 1 && row.img_per_s) add("one round: differences from other rows may be chance");
  for (const std::string& note : row.notes) add(note);
  return notes;
}

std::vector<std::string> cells_of(const SweepResult& sweep, const Row& row) {
  std::vector<std::string> cells;
  for (const ConfigKey* key : sweep.varied) cells.push_back(key->get(row.config));
  if (!row.img_per_s) {
    cells.emplace_back("-");
  } else if (row.repetitions.size() == 1) {
    cells.push_back(format_fixed(row.img_per_s->median, 1) + " (once)");
  } else {
    cells.push_back(format_spread(*row.img_per_s, 1));
  }
  if (row.is_ceiling) {
    cells.insert(cells.end(), {"(the ceiling)", ""});
  } else {
    cells.push_back(row.input_cost ? cost_cell(*row.input_cost) : "-");
    cells.push_back(row.input_cost ? format_fixed(row.input_cost->ms_per_step.value, 2) : "-");
  }
  cells.push_back(device_idle_of(row));
  cells.emplace_back(to_string(row.status));
  return cells;
}

}  // namespace

std::string format_fixed(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.find_first_not_of("-0.") == std::string::npos && text.front() == '-') text.erase(0, 1);
  return text;
}

std::string format_spread(const Spread& spread, int decimals) {
  return fmt::format("{} ({}..{})", format_fixed(spread.median, decimals),
                     format_fixed(spread.low, decimals), format_fixed(spread.high, decimals));
}

std::string headline(const SweepResult& sweep) {
  const std::string batch = values_of(sweep, "batch_size");
  const std::string devices = values_over(
      sweep, [](const RunConfig& config) { return fmt::format("{}", all_devices(config)); });
  const std::string rate = device_rate(sweep);
  const bool one_device = devices == "1", one_row = sweep.rows.size() == 1;
  const std::string loop = values_over(sweep, [](const RunConfig& config) {
    return config.loop.empty() ? std::string("none") : config.loop;
  });
  return fmt::format(
      "What it costs to feed {} {} device{}{}{} that train{} {} (update {}, batch {} per "
      "device{}): {}{}, in at most {}{}. Every run is a separate process that measures {} steps or "
      "more; their order is random.",
      devices, values_of(sweep, "device"), one_device ? "" : "s", rate,
      one_device || rate.empty() ? "" : " each", one_device ? "s" : "", values_of(sweep, "model"),
      values_of(sweep, "variable_update"), batch == "0" ? "auto" : batch,
      loop == "none" ? "" : ", loop " + loop, count(sweep.rows.size(), "configuration"),
      one_row ? "" : " compared", count(static_cast<std::size_t>(sweep.repetitions), "run"),
      one_row ? "" : " each", values_of(sweep, "num_batches"));
}

std::vector<std::string> how_to_read(const SweepResult& sweep) {
  std::vector<std::string> lines;
  const bool has_rates =
      std::ranges::any_of(sweep.rows, [](const Row& row) { return row.img_per_s.has_value(); });
  if (has_rates) {
    lines = {sweep.steady ? "img/s: images that all devices together train in a second, without "
                            "warm-up and as `isolate` says it: below 5 rounds the middle round "
                            "(lowest..highest), else the mean (its 95 % interval)."
                          : "img/s: images that all devices together train in a second; median of "
                            "the rounds (lowest..highest).",
             "input cost: the share of the `gpu` row's img/s that is lost with this feeder; "
             "batches of `gpu` are already on the device. With '..': the middle round, the lowest "
             "and the highest; with 'to', from 5 rounds on: the mean and its 95 % interval.",
             "ms/step lost: how much longer each step takes. idle: the share of its time in which "
             "a device had nothing to compute.",
             std::string(parts_terms())};
  }
  for (const StatusText& text : kStatusTexts) {
    if (std::ranges::find(sweep.rows, text.status, &Row::status) == sweep.rows.end()) continue;
    lines.push_back(fmt::format("{}: {}.", to_string(text.status), text.meaning));
  }
  return lines;
}

std::vector<std::string> notes_of(const SweepResult& sweep) {
  constexpr std::size_t kMostLabels = 4;
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;
  const auto ran =
      std::ranges::count_if(sweep.rows, [](const Row& row) { return !row.repetitions.empty(); });
  for (const Row& row : sweep.rows) {
    for (const std::string& text : notes_of_row(sweep, row)) {
      auto same = std::ranges::find(notes, text, [](const auto& note) { return note.first; });
      if (same == notes.end()) same = notes.insert(notes.end(), {text, {}});
      same->second.push_back(label_of(sweep, row));
    }
  }
  std::vector<std::string> lines;
  for (auto& [text, labels] : notes) {
    if (ran > 1 && labels.size() == static_cast<std::size_t>(ran)) {
      lines.push_back(fmt::format("all rows: {}.", text));
      continue;
    }
    const std::size_t others = labels.size() - std::min(labels.size(), kMostLabels);
    labels.resize(labels.size() - others);
    const std::string more = others == 0 ? "" : fmt::format(" and {} more", others);
    lines.push_back(fmt::format("{}{}: {}.", fmt::join(labels, "; "), more, text));
  }
  return lines;
}

std::string full_label(const RunConfig& config) {
  constexpr std::array<std::string_view, 5> kLeftOut = {"loader", "python", "batch", "pixels",
                                                        "planar"};
  const ComponentText feeder = parse_component(config.fake_location);
  std::string name, others;
  for (const auto& [option, value] : feeder.values) {
    if (option == "loader") name = value.substr(value.rfind('/') + 1);
    if (std::ranges::find(kLeftOut, option) == kLeftOut.end()) {
      others += fmt::format(", {}={}", option, value);
    }
  }
  return name.empty() ? config.fake_location : name + others;
}

std::string label_of(const SweepResult& sweep, const Row& row) {
  std::string text = full_label(row.config);
  for (const ConfigKey* key : sweep.varied) {
    if (key->name == "fake_location") continue;
    text += fmt::format(", {} {}", kebab(key->name), key->get(row.config));
  }
  return text;
}

std::string format_estimate(const statistics::Estimate& estimate, int decimals) {
  const auto text = [&](double value) {
    return std::isfinite(value) ? format_fixed(value, decimals) : std::string("?");
  };
  if (estimate.is_spread && estimate.samples == 1) return text(estimate.value) + " (once)";
  if (!std::isfinite(estimate.high)) return text(estimate.value) + " (interval unknown)";
  return fmt::format("{} ({}{}{})", text(estimate.value), text(estimate.low),
                     estimate.is_spread ? ".." : " to ", text(estimate.high));
}

std::string paste_line(const std::string& label, const statistics::CostEstimate& cost,
                       const Environment& environment, bool busy) {
  const statistics::Estimate& percent = cost.percent;
  const std::string ends =
      percent.is_spread && percent.samples == 1
          ? "once"
          : fmt::format("{}{}{}", format_fixed(percent.low, 1), percent.is_spread ? ".." : " to ",
                        format_fixed(percent.high, 1));
  return fmt::format("{}: {} % lost ({}), {}{}, {}", label, format_fixed(percent.value, 1), ends,
                     count(static_cast<std::size_t>(environment.usable_cores), "core"),
                     busy ? " of a busy machine" : "",
                     environment.date.substr(0, environment.date.find('T')));
}

std::string feeder_label(const RunConfig& config) {
  constexpr std::size_t kLong = 40;
  const std::string label = full_label(config);
  if (label != config.fake_location) return label.substr(0, label.find(','));
  if (label.size() <= kLong) return label;
  return parse_component(config.fake_location).name + ":...";
}

std::string_view ends_of(const statistics::Estimate& estimate) {
  return estimate.is_spread ? "lowest and highest" : "95 % interval";
}

std::string cost_text(const statistics::CostEstimate& cost, std::string_view round) {
  const statistics::Estimate& percent = cost.percent;
  const std::string value = format_fixed(percent.value, 1), low = format_fixed(percent.low, 1),
                    high = format_fixed(percent.high, 1);
  if (!percent.is_spread) return fmt::format("{} % ({} to {})", value, low, high);
  if (percent.samples == 1) return fmt::format("{} % (one {})", value, round);
  const std::string rounds = count(percent.samples, round);
  if (low == high) return fmt::format("{} % (in each of {})", value, rounds);
  return fmt::format("{} % ({}..{} in {})", value, low, high, rounds);
}

std::string undecided_text(const statistics::CostEstimate& cost, std::string_view round) {
  const statistics::Estimate& percent = cost.percent;
  const std::string range = range_text(percent);
  const std::size_t rounds = cost.rounds.size();
  if (!cost.same_rounds) {
    return fmt::format("{} lost, by runs of different {}s; measure again", range, round);
  }
  if (rounds < statistics::kRoundsForVerdict) {
    return fmt::format("{} lost in {}; a verdict takes {} or more", range,
                       rounds == 1 ? fmt::format("one {}", round) : count(rounds, round),
                       statistics::kRoundsForVerdict);
  }
  if (percent.is_spread && percent.low > 100 * cost.margin) {
    return fmt::format("{} lost in {}; they differ, measure again", range, count(rounds, round));
  }
  constexpr std::size_t kMany = 200;  // more rounds than a user would measure
  const std::string more = cost.more_rounds == 0 || cost.more_rounds >= kMany
                               ? "measure again, on a quieter machine"
                               : fmt::format("about {} more {}{} would decide it", cost.more_rounds,
                                             round, cost.more_rounds == 1 ? "" : "s");
  return fmt::format("{} lost{}, which is inconclusive; {}", range,
                     percent.is_spread ? " in " + count(rounds, round) : "", more);
}

std::vector<const Row*> rows_by_cost(const SweepResult& sweep) {
  std::vector<const Row*> rows;
  for (const Row& row : sweep.rows) {
    if (!row.is_ceiling && row.input_cost) rows.push_back(&row);
  }
  std::ranges::stable_sort(rows, std::greater(),
                           [](const Row* row) { return row->input_cost->percent.value; });
  return rows;
}

std::string cost_sentence(const SweepResult& sweep, const Row& row) {
  if (row.is_ceiling || !row.input_cost) return "";
  const statistics::CostEstimate& cost = *row.input_cost;
  const std::string label = label_of(sweep, row);
  switch (cost.verdict) {
    case statistics::Verdict::slower:
      return fmt::format("{} loses {} of what {} could train: {} ms of each step.", label,
                         cost_text(cost), device_of(row), format_fixed(cost.ms_per_step.value, 2));
    case statistics::Verdict::equal:
      return fmt::format("{} keeps up: it loses {}, within the margin of {:g} %.", label,
                         cost_text(cost), 100 * cost.margin);
    case statistics::Verdict::faster:
      return fmt::format(
          "{} was {} % faster than {} alone. Feeding cannot do that: something else differed "
          "between their runs.",
          label, format_fixed(-cost.unbounded_percent, 1), device_of(row));
    case statistics::Verdict::undecided:
      break;
  }
  return fmt::format("{}: {}.", label, undecided_text(cost));
}

document::Table text_table(const SweepResult& sweep) {
  document::Table table;
  for (const ConfigKey* key : sweep.varied) {
    table.columns.push_back({key->name == "fake_location" ? "feeder" : kebab(key->name)});
  }
  for (const char* name : {"img/s", "input cost %", "ms/step lost", "idle %", "status"}) {
    table.columns.push_back({name});
  }
  for (const Row& row : sweep.rows) table.rows.push_back(cells_of(sweep, row));
  return table;
}

std::vector<std::pair<std::string, std::string>> environment_lines(const SweepResult& sweep) {
  const Environment& environment = sweep.environment;
  std::vector<std::string> libraries;
  for (const auto& [name, version] : environment.libraries)
    libraries.push_back(name + " " + version);
  const std::string gpus = environment.gpus.empty() ? "none" : join(environment.gpus);
  return {
      {"processor",
       environment.cpu_model + (environment.virtual_machine ? " (virtual machine)" : "")},
      {"cores", fmt::format("{} usable of {}", environment.usable_cores, environment.online_cores)},
      {"memory", fmt::format("{:.1f} GiB", static_cast<double>(environment.memory_bytes) / 0x1p30)},
      {"GPU", gpus + (environment.gpu_driver ? ", driver " + *environment.gpu_driver : "")},
      {"frequency governor", environment.cpu_governor.value_or("not visible")},
      {"load average at the start", fmt::format("{:.2f}", environment.load_average)},
      {"time taken by the hypervisor",
       fmt::format("{:.2f} %", environment.steal_percent.value_or(0))},
      {"kernel", environment.kernel},
      {"Penstock", environment.version + ", revision " + environment.revision},
      {"compiler", fmt::format("{}, {}: {}", environment.compiler, environment.build_type,
                               environment.compiler_flags)},
      {"libraries", join(libraries)},
      {"date", environment.date},
      {"seed", fmt::format("{}", sweep.seed)}};
}

}  // namespace penstock
