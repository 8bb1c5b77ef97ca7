// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/variation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "bench/record/report_text.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"

namespace penstock::isolate {
namespace {

constexpr std::size_t kMostSettings = 32;
/// Two runs of one setting may differ by this factor.
constexpr double kBeyondNoise = 1.25;
/// Options of feeders that run a loader of the user's.
constexpr std::string_view kArguments = "args", kEnvironment = "env";

struct Variable {
  std::string name;
  std::vector<std::string> values;
};

std::vector<Variable> parse_variables(std::string_view text) {
  std::vector<Variable> variables;
  const auto refuse = [&] {
    throw ConfigError(fmt::format(
        "--vary is '{}'; expected NAME=VALUE,VALUE,..., such as num_workers=0,2,4", text));
  };
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string_view piece = text.substr(begin, end - begin);
    begin = end + 1;
    if (const std::size_t equals = piece.find('='); equals != piece.npos) {
      variables.push_back({std::string(piece.substr(0, equals)), {}});
      piece.remove_prefix(equals + 1);
    }
    if (piece.empty() || variables.empty() || variables.back().name.empty()) refuse();
    variables.back().values.emplace_back(piece);
  }
  return variables;
}

const OptionSpec* find_option(const FeederEntry& feeder, std::string_view name) {
  const auto found = std::ranges::find_if(feeder.options, [&](const OptionSpec& option) {
    return canonical_name(option.name) == canonical_name(name);
  });
  return found == feeder.options.end() ? nullptr : &*found;
}

bool names_environment(std::string_view name) {
  return std::ranges::all_of(name, [](unsigned char c) {
    return std::isupper(c) != 0 || std::isdigit(c) != 0 || c == '_';
  });
}

/// The option's value in a component's text, which is added if it is not there.
std::string& value_of(ComponentText& component, std::string_view option) {
  for (auto& [name, value] : component.values) {
    if (canonical_name(name) == canonical_name(option)) return value;
  }
  return component.values.emplace_back(option, "").second;
}

/// Where the value of `name` stands in "a=1,b=[1,2]"; empty: nowhere.
std::optional<std::pair<std::size_t, std::size_t>> find_value(const std::string& list,
                                                              const std::string& name) {
  std::size_t begin = 0;
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else {
      depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
      depth -= c == ')' || c == ']' || c == '}' ? 1 : 0;
    }
    if (i < list.size() && (c != ',' || depth != 0 || quote != 0)) continue;
    const std::size_t value = begin + name.size() + 1;
    if (value <= i && list.compare(begin, name.size() + 1, name + "=") == 0) {
      return {{value, i - value}};
    }
    begin = i + 1;
  }
  return std::nullopt;
}

/// A rate that no device takes is noise of the present setting's.
statistics::Estimate within(statistics::Estimate rate, double most) {
  for (double* const bound : {&rate.value, &rate.low, &rate.high}) *bound = std::min(*bound, most);
  return rate;
}

void apply(RunConfig& config, const SettingChange& change) {
  const auto& [kind, name, value, now] = change;
  if (kind == SettingKind::flag) return find_config_key(name).set(config, value);
  ComponentText component = parse_component(config.fake_location);
  if (kind == SettingKind::option) {
    value_of(component, name) = value;
  } else {
    std::string& list =
        value_of(component, kind == SettingKind::environment ? kEnvironment : kArguments);
    if (const auto place = find_value(list, name)) {
      list.replace(place->first, place->second, value);
    } else {
      list += fmt::format("{}{}={}", list.empty() ? "" : ",", name, value);
    }
  }
  config.fake_location = component_text(component);
}

}  // namespace

std::string_view to_string(SettingKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"option", "flag", "argument", "environment"};
  return kNames[static_cast<std::size_t>(kind)];
}

SettingChange change_of(const RunConfig& present, std::string_view name, std::string value) {
  ComponentText component = parse_component(present.fake_location);
  const FeederEntry& feeder = find_entry(feeder_table(), component.name);
  SettingChange change{SettingKind::option, std::string(name), std::move(value), ""};
  if (const OptionSpec* const option = find_option(feeder, name)) {
    change.name = option->name;
    change.now = value_of(component, option->name);
  } else if (find_option(feeder, kArguments) == nullptr) {
    change.kind = SettingKind::flag;
    change.now = find_config_key(name).get(present);
  } else {
    change.kind = names_environment(name) ? SettingKind::environment : SettingKind::argument;
    const std::string list =
        value_of(component, change.kind == SettingKind::environment ? kEnvironment : kArguments);
    if (const auto place = find_value(list, change.name))
      change.now = list.substr(place->first, place->second);
  }
  return change;
}

std::vector<Setting> settings_of(std::string_view text, const RunConfig& present) {
  Setting now{.change = "", .values = "", .config = present, .unavailable = "", .row = {}};
  std::vector<Setting> settings{now};
  for (const Variable& variable : parse_variables(text)) {
    std::vector<Setting> longer;
    for (const Setting& shorter : settings) {
      for (const std::string& value : variable.values) {
        Setting setting = shorter;
        setting.change +=
            fmt::format("{}{}={}", setting.change.empty() ? "" : ", ", variable.name, value);
        setting.changes.push_back(change_of(present, variable.name, value));
        apply(setting.config, setting.changes.back());
        longer.push_back(std::move(setting));
        if (longer.size() <= kMostSettings) continue;
        throw ConfigError(
            fmt::format("--vary is '{}', which makes more than {} combinations; leave out values",
                        text, kMostSettings));
      }
    }
    settings = std::move(longer);
  }
  const auto same = std::ranges::find(settings, present, &Setting::config);
  if (same != settings.end()) {
    now.values = same->change;
    settings.erase(same);
  }
  settings.insert(settings.begin(), std::move(now));
  return settings;
}

bool is_present(const Setting& setting, const RunResult& run, const RunResult& present) {
  const auto is_as_now = [&](const SettingChange& change) {
    const auto now = fact_of(present, "loader_" + change.name);
    return now && fact_of(run, "loader_" + change.name) == now;
  };
  return !setting.changes.empty() && std::ranges::all_of(setting.changes, is_as_now);
}

VariationFinding find_variation(const SweepResult& sweep, std::span<const Setting> settings,
                                const analysis::InputCostFinding& present) {
  const double now_img_per_s = present.coupled_img_per_s.value;
  VariationFinding found;
  double highest = 0;
  for (const Setting& setting : settings) {
    SettingFinding finding{.change = setting.change,
                           .values = setting.values,
                           .img_per_s = {},
                           .unavailable = setting.unavailable};
    if (setting.row && settings.front().row) {
      const Row& row = sweep.rows[*setting.row];
      const std::vector<analysis::BlockPair> blocks =
          analysis::pair_blocks(sweep.rows[*settings.front().row], row);
      found.blocks = std::max(found.blocks, blocks.size());
      if (blocks.empty()) {
        finding.unavailable = row.reason.empty() ? "no run ended well" : row.reason;
      } else {
        const statistics::Estimate times = statistics::paired_ratio(analysis::step_pairs(blocks));
        finding.img_per_s =
            within(analysis::rate_of(times, now_img_per_s / 1e3), present.ceiling_img_per_s.value);
        highest = std::max(highest, finding.img_per_s->value);
      }
    }
    found.settings.push_back(std::move(finding));
  }
  for (std::size_t i = 0; i < found.settings.size() && !found.best; ++i) {
    const auto& rate = found.settings[i].img_per_s;
    if (rate && rate->value >= (1 - present.margin) * highest) found.best = i;
  }
  // A setting that may be no faster than the present one is no winner.
  if (found.best.value_or(0) != 0 && found.settings.front().img_per_s) {
    const statistics::Estimate& rate = *found.settings[*found.best].img_per_s;
    const bool is_known = found.blocks >= statistics::kRoundsForVerdict;
    if ((is_known ? rate.low : rate.value / kBeyondNoise) <= now_img_per_s) found.best = 0;
  }
  return found;
}

std::optional<Recommendation> recommendation_of(const VariationFinding& found,
                                                std::span<const Setting> settings,
                                                const analysis::InputCostFinding& present) {
  if (!found.best || *found.best == 0) return std::nullopt;
  const SettingFinding& best = found.settings[*found.best];
  const double gain = best.img_per_s->value / present.coupled_img_per_s.value;
  if (gain < 1 + present.margin) return std::nullopt;
  return Recommendation{.text = fmt::format("{}: {:.0f} img/s, {:.2f} times as many as now.",
                                            best.change, best.img_per_s->value, gain),
                        .change = best.change,
                        .config = settings[*found.best].config,
                        .img_per_s = best.img_per_s->value};
}

std::string sentence_of(const VariationFinding& found, double margin) {
  if (!found.best) return "No setting of --vary could be measured.";
  const SettingFinding& best = found.settings[*found.best];
  const std::size_t tried = found.settings.size() - (found.settings[0].values.empty() ? 1 : 0);
  std::vector<std::string> alike;
  for (std::size_t i = 0; i < found.settings.size(); ++i) {
    const auto& rate = found.settings[i].img_per_s;
    if (i == *found.best || i == 0 || !rate) continue;
    if (rate->value >= (1 - margin) * best.img_per_s->value)
      alike.push_back(found.settings[i].change);
  }
  // The rates of other settings are relative to the present one, which has no interval therefore.
  const std::string rate = best.change.empty() ? format_fixed(best.img_per_s->value, 0)
                                               : format_estimate(*best.img_per_s, 0);
  std::string text =
      best.change.empty()
          ? fmt::format("None of {} settings is faster than the present one: {} img/s.", tried,
                        rate)
          : fmt::format("Of {} setting{}, {} is best: {} img/s.", tried, tried == 1 ? "" : "s",
                        best.change, rate);
  if (found.blocks < statistics::kRoundsForVerdict) {
    text += fmt::format(" Fewer than {} blocks fitted, so this is a guess: raise --vary-budget.",
                        statistics::kRoundsForVerdict);
  }
  if (best.change.empty() || alike.empty()) return text;
  constexpr std::size_t kMostNames = 3;
  const std::size_t more = alike.size() - std::min(alike.size(), kMostNames);
  alike.resize(alike.size() - more);
  return text + fmt::format(" {}{} would gain nothing more.", fmt::join(alike, "; "),
                            more == 0 ? "" : fmt::format(" and {} others", more));
}

}  // namespace penstock::isolate
