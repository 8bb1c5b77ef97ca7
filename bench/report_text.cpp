// SPDX-License-Identifier: Apache-2.0
#include "bench/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "dataflow/entry.h"

namespace penstock {
namespace {

struct StatusText {
  Status status;
  std::string_view meaning;
};
constexpr std::array kStatusTexts = {
    StatusText{Status::skipped,
               "this machine or this program lacks what the row needs, or there was no "
               "time for it"},
    StatusText{Status::failed, "no repetition came to an end; the note says why"},
    StatusText{Status::partial,
               "some repetitions failed or were cut short; the figures are those of the "
               "others"},
    StatusText{Status::draining,
               "batches made before the measurement decided its rate, or may have, so "
               "there is no input cost; measure more steps (--num-batches)"},
};

/// The values of a key over all rows: "64", "1, 2 or 4".
std::string values_of(const SweepResult& sweep, std::string_view name) {
  const ConfigKey& key = find_config_key(name);
  std::vector<std::string> values;
  for (const Row& row : sweep.rows) {
    const bool unresolved = row.config.batch_size == 0 && sweep.rows.front().config.batch_size != 0;
    const std::string value = key.get(row.config);
    const bool known = std::find(values.begin(), values.end(), value) != values.end();
    if (!unresolved && !known) values.push_back(value);
  }
  const std::string last = values.back();
  values.pop_back();
  return values.empty() ? last : join(values) + " or " + last;
}

/// " of 1785.7 img/s each", where all rows agree on that.
std::string device_rate(const SweepResult& sweep) {
  double rate = 0;
  for (const Row& row : sweep.rows) {
    for (const Repetition& repetition : row.repetitions) {
      const auto fact = repetition.result.facts.find("emulated_img_per_s");
      if (fact == repetition.result.facts.end()) continue;
      if (rate != 0 && rate != fact->second) return "";
      rate = fact->second;
    }
  }
  return rate == 0 ? "" : fmt::format(" of {:.1f} img/s each", rate);
}

/// The median of the repetitions that took steps, or "-".
std::string device_idle_of(const Row& row) {
  std::vector<double> percents;
  for (const Repetition& repetition : row.repetitions) {
    const RunResult& result = repetition.result;
    if (!result.step_ms.empty()) percents.push_back(result.device_idle_percent);
  }
  return percents.empty() ? "-" : format_fixed(median(percents), 1);
}

/// What is remarkable about every row that ran, where there are several: said once for all.
std::vector<std::string> common_notes(const SweepResult& sweep) {
  std::vector<std::string> common;
  std::size_t ran = 0;
  for (const Row& row : sweep.rows) {
    if (row.repetitions.empty()) continue;
    if (ran++ == 0) common = row.notes;
    std::erase_if(common, [&row](const std::string& note) {
      return std::find(row.notes.begin(), row.notes.end(), note) == row.notes.end();
    });
  }
  if (ran < 2) common.clear();
  return common;
}

std::string count(std::size_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
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
  const std::string batch = values_of(sweep, "batch_size"), devices = values_of(sweep, "num_gpus");
  return fmt::format(
      "What it costs to feed {} {} device{}{} that train{} {} (update {}, batch {} per device): {} "
      "compared, in at most {} each. Every run is a process of its own that measures {} steps or "
      "more; their order is random.",
      devices, values_of(sweep, "device"), devices == "1" ? "" : "s", device_rate(sweep),
      devices == "1" ? "s" : "", values_of(sweep, "model"), values_of(sweep, "variable_update"),
      batch == "0" ? "auto" : batch, count(sweep.rows.size(), "configuration"),
      count(static_cast<std::size_t>(sweep.repetitions), "run"), values_of(sweep, "num_batches"));
}

std::vector<std::string> how_to_read(const SweepResult& sweep) {
  std::vector<std::string> lines{
      "img/s: images trained on per second by all devices together; median of the repetitions "
      "(lowest..highest).",
      "input cost: the share of the speed of the `gpu` row (batches that already lie on the "
      "device) that "
      "is lost with this feeder, at the rate that the feeder can keep up.",
      "ms/step lost: how much longer each step takes because of it.",
      "idle: the share of its time in which a device had no step to compute."};
  for (const StatusText& text : kStatusTexts) {
    const bool occurs = std::any_of(sweep.rows.begin(), sweep.rows.end(),
                                    [&](const Row& row) { return row.status == text.status; });
    if (occurs) lines.push_back(fmt::format("{}: {}.", to_string(text.status), text.meaning));
  }
  for (const std::string& note : common_notes(sweep)) lines.push_back("all rows: " + note + ".");
  return lines;
}

std::string note_of(const SweepResult& sweep, const Row& row) {
  std::string note = row.reason;
  const auto add = [&](std::string_view text) {
    if (!note.empty()) note += "; ";
    note += text;
  };
  if (!row.input_cost && note.empty()) add("no input cost: " + row.unresolved);
  const auto ran = static_cast<std::int32_t>(row.repetitions.size());
  if (ran > 0 && ran < sweep.repetitions && row.unavailable.empty()) {
    add(fmt::format("{} of {} repetitions", ran, sweep.repetitions));
  }
  if (ran == 1 && row.img_per_s) add("one round: differences from other rows may be chance");
  const std::vector<std::string> common = common_notes(sweep);
  for (const std::string& text : row.notes) {
    if (std::find(common.begin(), common.end(), text) == common.end()) add(text);
  }
  return note;
}

std::string label_of(const SweepResult& sweep, const Row& row) {
  std::string text = row.config.fake_location;
  for (const ConfigKey* key : sweep.varied) {
    if (key->name == "fake_location") continue;
    text += fmt::format(", {} {}", kebab(key->name), key->get(row.config));
  }
  return text;
}

std::vector<std::string> text_columns(const SweepResult& sweep) {
  std::vector<std::string> columns;
  for (const ConfigKey* key : sweep.varied) {
    columns.push_back(key->name == "fake_location" ? "feeder" : kebab(key->name));
  }
  for (const char* name : {"img/s", "input cost %", "ms/step lost", "idle %", "status", "note"}) {
    columns.emplace_back(name);
  }
  return columns;
}

std::vector<std::string> text_cells(const SweepResult& sweep, const Row& row) {
  std::vector<std::string> cells;
  for (const ConfigKey* key : sweep.varied) cells.push_back(key->get(row.config));
  cells.push_back(row.img_per_s ? format_spread(*row.img_per_s, 1) : "-");
  if (row.is_ceiling) {
    cells.insert(cells.end(), {"(the ceiling)", ""});
  } else {
    cells.push_back(row.input_cost ? format_spread(row.input_cost->percent, 1) : "-");
    cells.push_back(row.input_cost ? format_fixed(row.input_cost->ms_per_step, 2) : "-");
  }
  cells.push_back(device_idle_of(row));
  cells.emplace_back(to_string(row.status));
  cells.push_back(note_of(sweep, row));
  return cells;
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
