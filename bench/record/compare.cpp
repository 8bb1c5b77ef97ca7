// SPDX-License-Identifier: Apache-2.0
#include "bench/record/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"
#include "bench/record/result_json.h"
#include "bench/statistics/unpaired.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// Rates are comparable only if the runs agree in these keys.
constexpr std::string_view kWorkloadKeys[] = {
    "fake_location", "model",   "device",       "precision", "num_gpus",   "batch_size",
    "image_size",    "classes", "forward_only", "eval",      "page_cache", "num_processes"};
/// These keys do not affect the measurement.
constexpr std::string_view kSilentKeys[] = {"seed",
                                            "cache_dir",
                                            "display_every",
                                            "display_perf_ewma",
                                            "loss_type_to_report",
                                            "print_training_accuracy"};
/// These keys set how long is measured, not what.
constexpr std::string_view kLengthKeys[] = {"num_batches", "num_epochs", "num_warmup_batches",
                                            "extend_window"};
/// Options of feeders that change the transport, but not the data.
constexpr std::string_view kTransportOptions[] = {
    "endpoint", "bind",     "hwm",          "io_threads",  "max_message",
    "producer", "insecure", "curve_secret", "curve_allow", "curve_server_key"};
/// Fields of an environment that hold only for the moment of reading.
constexpr std::string_view kMomentary[] = {"date", "load_average", "steal_percent"};

template <typename List, typename Value>
bool contains(const List& list, const Value& value) {
  return std::ranges::find(list, value) != std::end(list);
}

void add_once(std::vector<std::string>& list, std::string text) {
  if (!contains(list, text)) list.push_back(std::move(text));
}

/// A feeder with the options that change its data, sorted by name.
std::string data_of(const std::string& fake_location) {
  ComponentText parts = parse_component(fake_location);
  std::ranges::sort(parts.values);
  std::string text = canonical_name(parts.name);
  for (const auto& [name, value] : parts.values) {
    if (!contains(kTransportOptions, name)) text += fmt::format(",{}={}", name, value);
  }
  return text;
}

std::string value_of(const ConfigKey& key, const RunConfig& config) {
  return key.name == "fake_location" ? data_of(config.fake_location) : key.get(config);
}

bool reads_files(const RunConfig& config) {
  const FeederEntry* const feeder = entry_of(feeder_table(), config.fake_location);
  return feeder != nullptr && feeder->reads_files;
}

/// Pairs rows of `before` that have one value of a key with rows of `after` that have the other.
struct Renaming {
  const ConfigKey* key = nullptr;
  std::string before, after;
};

bool has_value(const SweepResult& sweep, const ConfigKey& key, std::string_view value) {
  return std::ranges::any_of(sweep.rows,
                             [&](const Row& row) { return key.get(row.config) == value; });
}

/// The values of a key over all rows, "1, 2".
std::string values_of(const SweepResult& sweep, const ConfigKey& key) {
  std::vector<std::string> values;
  for (const Row& row : sweep.rows) add_once(values, key.get(row.config));
  return join(values);
}

/// Parses "KEY=A:B". Values may contain colons. The separator is the colon with a value of `before`
/// on its left and a value of `after` on its right.
Renaming parse_renaming(std::string_view text, const SweepResult& before,
                        const SweepResult& after) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    throw ConfigError(
        "--match is {}; expected KEY=A:B, such as fake_location=queue:queue:decode=full", text);
  }
  const ConfigKey& key = find_config_key(text.substr(0, equals));
  const std::string_view values = text.substr(equals + 1);
  for (std::size_t at = values.find(':'); at != std::string_view::npos;
       at = values.find(':', at + 1)) {
    const std::string_view left = values.substr(0, at), right = values.substr(at + 1);
    if (has_value(before, key, left) && has_value(after, key, right)) {
      return {&key, std::string(left), std::string(right)};
    }
  }
  throw ConfigError(
      "--match is {}; expected A:B of the values of {} that rows have: before {}; after {}", text,
      key.name, values_of(before, key), values_of(after, key));
}

std::vector<Renaming> parse_renamings(std::string_view text, const SweepResult& before,
                                      const SweepResult& after) {
  std::vector<Renaming> renamings;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    renamings.push_back(parse_renaming(text.substr(begin, end - begin), before, after));
    begin = end + 1;
  }
  return renamings;
}

/// A copy of `before` in which each renamed value is replaced by its value in `after`.
SweepResult renamed(SweepResult before, const std::vector<Renaming>& renamings) {
  for (Row& row : before.rows) {
    for (const Renaming& renaming : renamings) {
      if (renaming.key->get(row.config) != renaming.before) continue;
      renaming.key->set(row.config, renaming.after);
    }
  }
  return before;
}

/// Keys that tell the rows of either result apart.
std::vector<const ConfigKey*> identity(const SweepResult& before, const SweepResult& after) {
  std::vector<const ConfigKey*> keys;
  for (const ConfigKey& key : config_keys()) {
    const bool varied = contains(before.varied, &key) || contains(after.varied, &key);
    if (varied && !contains(kSilentKeys, key.name)) keys.push_back(&key);
  }
  return keys;
}

bool same_values(const std::vector<const ConfigKey*>& keys, const Row& a, const Row& b) {
  return std::ranges::all_of(keys, [&](const ConfigKey* key) {
    return value_of(*key, a.config) == value_of(*key, b.config);
  });
}

/// The only row with the same values of `keys`, or null.
const Row* only_match(const std::vector<const ConfigKey*>& keys, const SweepResult& sweep,
                      const Row& row) {
  const Row* found = nullptr;
  for (const Row& other : sweep.rows) {
    if (!same_values(keys, row, other)) continue;
    if (found != nullptr) return nullptr;
    found = &other;
  }
  return found;
}

/// The row of `before` that matches `row` of `after`, or null. If no row was measured for the same
/// length, a row with another length matches, if there is only one on either side.
const Row* match(const SweepResult& before, const SweepResult& after, const Row& row) {
  if (before.rows.size() == 1 && after.rows.size() == 1) return &before.rows.front();
  std::vector<const ConfigKey*> keys = identity(before, after);
  if (const Row* const found = only_match(keys, before, row)) return found;
  std::erase_if(keys, [](const ConfigKey* key) { return contains(kLengthKeys, key->name); });
  return only_match(keys, after, row) == &row ? only_match(keys, before, row) : nullptr;
}

/// Amount of data through a stage, over all repetitions.
struct Volume {
  double images = 0, bytes = 0;
};
std::map<std::string, Volume> volumes_of(const Row& row) {
  std::map<std::string, Volume> volumes;
  for (const Repetition& repetition : row.repetitions) {
    for (const StageUse& stage : repetition.result.stages) {
      volumes[stage.name].images += static_cast<double>(stage.images);
      volumes[stage.name].bytes += static_cast<double>(stage.bytes);
    }
  }
  return volumes;
}

/// Detects that images of other sizes were read. Sizes of photographs scatter by about half of
/// their mean, so means of few images may differ more.
void compare_volumes(const Row& before, const Row& after, Comparison& result) {
  const std::map<std::string, Volume> volumes = volumes_of(before);
  for (const auto& [name, now] : volumes_of(after)) {
    const auto found = volumes.find(name);
    if (found == volumes.end()) continue;
    const Volume& then = found->second;
    if (then.bytes <= 0 || now.bytes <= 0 || then.images < 1 || now.images < 1) continue;
    const double size = then.bytes / then.images, new_size = now.bytes / now.images;
    const double slack = 0.05 + 2 / std::sqrt(std::min(then.images, now.images));
    if (std::abs(std::log(new_size / size)) <= slack) continue;
    add_once(result.obstacles,
             fmt::format("images: {:.1f} kB each on their way into '{}' before, {:.1f} kB after",
                         size / 1e3, name, new_size / 1e3));
  }
}

void compare_settings(const Row& before, const Row& after, const CompareOptions& options,
                      Comparison& result) {
  for (const ConfigKey& key : config_keys()) {
    if (contains(kSilentKeys, key.name)) continue;
    const std::string was = key.get(before.config), is = key.get(after.config);
    if (was == is) continue;
    const bool files = key.name == "data_dir" && reads_files(after.config);
    const bool matters = (contains(kWorkloadKeys, key.name) || files) &&
                         value_of(key, before.config) != value_of(key, after.config);
    const bool allowed = contains(options.allowed, key.name);
    add_once(matters && !allowed ? result.obstacles : result.settings,
             fmt::format("{}: {} -> {}", key.name, was, is));
  }
  if (!contains(options.allowed, "data_dir")) compare_volumes(before, after, result);
}

void flatten(const std::string& prefix, const Json& json, std::map<std::string, std::string>& out) {
  if (!json.is_object()) {
    out[prefix] = json.is_string() ? json.get<std::string>() : json.dump();
    return;
  }
  for (const auto& [name, value] : json.items()) {
    flatten(prefix.empty() ? name : prefix + " " + name, value, out);
  }
}

void compare_environments(const Environment& before, const Environment& after, Comparison& result) {
  if (before.version.empty() || after.version.empty()) {
    result.environment.emplace_back("unknown in one of the two");
    return;
  }
  std::map<std::string, std::string> was, is;
  flatten("", to_json(before), was);
  flatten("", to_json(after), is);
  for (const auto& [name, value] : was) is.emplace(name, "none");
  for (const auto& [name, value] : is) {
    const auto found = was.find(name);
    const std::string old = found == was.end() ? "none" : found->second;
    if (old != value && !contains(kMomentary, name)) {
      result.environment.push_back(fmt::format("{}: {} -> {}", name, old, value));
    }
  }
}

/// Kept-up rates of the repetitions that are ok. They do not count batches made before the window.
std::vector<double> rates_of(const Row& row) {
  std::vector<double> rates;
  for (const Repetition& repetition : row.repetitions) {
    const RunResult& result = repetition.result;
    const double rate = kept_up_img_per_s(result);
    if (result.status == Status::ok && rate > 0) rates.push_back(rate);
  }
  return rates;
}

double geometric_mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return values.empty() ? 0 : std::exp(sum / static_cast<double>(values.size()));
}

std::string reason_of(std::span<const double> before, std::span<const double> after,
                      double margin) {
  const std::size_t fewest = std::min(before.size(), after.size());
  if (fewest < 3) {
    return fmt::format("{} repetitions before and {} after; at least 3 each are needed",
                       before.size(), after.size());
  }
  return fmt::format("about {} repetitions each would narrow it to the margin",
                     std::max(statistics::values_needed(before, after, margin), fewest + 1));
}

RowChange change_of(const SweepResult& sweep, const Row& before, const Row& after, double margin) {
  RowChange change;
  change.label = label_of(sweep, after);
  const std::vector<double> was = rates_of(before), is = rates_of(after);
  change.before_img_per_s = geometric_mean(was);
  change.after_img_per_s = geometric_mean(is);
  if (was.empty() || is.empty()) {
    const Row& culprit = was.empty() ? before : after;
    change.reason = fmt::format("the row is {} {}: {}", to_string(culprit.status),
                                was.empty() ? "before" : "after", culprit.reason);
    return change;
  }
  const statistics::Estimate ratio = statistics::unpaired_ratio(was, is);
  const auto percent = [](double factor) { return 100 * (factor - 1); };
  change.change_percent = {percent(ratio.value), percent(ratio.low), percent(ratio.high),
                           ratio.samples};
  std::vector<double> time_before, time_after;
  for (const double rate : was) time_before.push_back(1 / rate);
  for (const double rate : is) time_after.push_back(1 / rate);
  change.verdict = statistics::judge_unpaired(time_before, time_after, margin);
  if (change.verdict == statistics::Verdict::undecided) change.reason = reason_of(was, is, margin);
  return change;
}

void explain_no_match(const SweepResult& before, const SweepResult& after, bool any,
                      Comparison& result) {
  result.obstacles.emplace_back(fmt::format(
      "no configuration is in both{}; `penstock report compare --match KEY=A:B` pairs renamed ones",
      any ? " but the ceiling" : ""));
  for (const ConfigKey* key : identity(before, after)) {
    const std::string was = values_of(before, *key), is = values_of(after, *key);
    if (was != is) result.obstacles.push_back(fmt::format("{}: {} -> {}", key->name, was, is));
  }
}

}  // namespace

Comparison compare(const SweepResult& saved, const SweepResult& after,
                   const CompareOptions& options) {
  Comparison result;
  result.margin = options.margin;
  const std::vector<Renaming> renamings = parse_renamings(options.renamed, saved, after);
  for (const Renaming& renaming : renamings) {
    result.settings.push_back(
        fmt::format("{}: {} -> {}", renaming.key->name, renaming.before, renaming.after));
  }
  const SweepResult before = renamed(saved, renamings);
  result.unit = sample_unit(after);
  if (const std::string was = sample_unit(before); was != result.unit) {
    result.obstacles.push_back(fmt::format("unit of the rates: {} -> {}", was, result.unit));
  }
  compare_environments(before.environment, after.environment, result);
  std::vector<const Row*> used;
  for (const Row& row : after.rows) {
    const Row* const old = match(before, after, row);
    if (old == nullptr) {
      result.unmatched.push_back("only after: " + label_of(after, row));
      continue;
    }
    used.push_back(old);
    compare_settings(*old, row, options, result);
    result.rows.push_back(change_of(after, *old, row, options.margin));
  }
  for (const Row& row : before.rows) {
    if (!contains(used, &row)) result.unmatched.push_back("only before: " + label_of(before, row));
  }
  const bool has_feeders = !std::ranges::all_of(before.rows, &Row::is_ceiling) ||
                           !std::ranges::all_of(after.rows, &Row::is_ceiling);
  const bool only_ceilings = has_feeders && std::ranges::all_of(used, &Row::is_ceiling);
  if (used.empty() || only_ceilings) explain_no_match(before, after, !used.empty(), result);
  if (!result.obstacles.empty()) result.rows.clear();
  return result;
}

double parse_margin(std::string_view text) {
  const double percent = parse_real(text, "--margin");
  if (!(percent >= 0 && percent <= 100)) {
    throw ConfigError("--margin is {}; expected per cent, from 0 to 100", text);
  }
  return percent / 100;
}

std::vector<std::string> parse_allowed(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    names.emplace_back(find_config_key(text.substr(begin, end - begin)).name);
    begin = end + 1;
  }
  return names;
}

int exit_code_of(const Comparison& comparison) {
  if (!comparison.obstacles.empty() || comparison.rows.empty()) return 7;
  const auto any = [&](statistics::Verdict verdict) {
    return std::ranges::any_of(comparison.rows,
                               [&](const RowChange& row) { return row.verdict == verdict; });
  };
  if (any(statistics::Verdict::slower)) return 1;
  return any(statistics::Verdict::undecided) ? 7 : 0;
}

}  // namespace penstock
