// SPDX-License-Identifier: Apache-2.0
#include "bench/config/run_flags.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "bench/config/foreign_flags.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

/// A heading in the help text. It covers the keys of config_keys() from `first_key` to the next
/// heading.
struct Heading {
  std::string_view first_key, title;
};
constexpr Heading kHeadings[] = {{"fake_location", "Components"},
                                 {"precision", "Training"},
                                 {"gradient_reduction", "Gradient exchange"},
                                 {"on_nonfinite", "Training"},
                                 {"momentum", "Optimizer"},
                                 {"num_batches", "Length of the run"},
                                 {"eval", "Evaluation"},
                                 {"train_dir", "Checkpoints"},
                                 {"data_dir", "Data and feeding"},
                                 {"display_every", "Table of steps"}};

/// The feeder that --loader means.
constexpr const char* kLoaderFeeder = "python";

}  // namespace

std::vector<Flag> run_flags(RunConfig& config) {
  std::vector<Flag> flags;
  std::string_view heading;
  for (const ConfigKey& key : config_keys()) {
    const auto begins = std::ranges::find(kHeadings, key.name, &Heading::first_key);
    if (begins != std::end(kHeadings)) heading = begins->title;
    flags.push_back({.name = std::string(key.name),
                     .aliases = std::string(key.aliases),
                     .help = std::string(key.help),
                     .fallback = key.get(config),
                     .boolean = key.boolean,
                     .set = [&config, &key](const std::string& text) { key.set(config, text); },
                     .group = std::string(heading)});
  }
  return join_flags(std::move(flags), translated_flags(config));
}

std::vector<Flag> run_flags(RunConfig& config, std::span<const std::string_view> names) {
  std::vector<Flag> flags = run_flags(config);
  std::erase_if(
      flags, [&](const Flag& flag) { return std::ranges::find(names, flag.name) == names.end(); });
  return flags;
}

std::vector<Flag> loader_flags(RunConfig& config) {
  constexpr FlagGroup flag{"Python loader"};
  const auto option = [&config](const char* name) {
    return [&config, name](const std::string& text) {
      ComponentText feeder = parse_component(config.fake_location);
      const FeederEntry* const known = match_entry(feeder_table(), feeder.name);
      if (known == nullptr || known->describe_batches == nullptr) feeder = {kLoaderFeeder, {}};
      std::erase_if(feeder.values, [&](const auto& value) { return value.first == name; });
      feeder.values.emplace_back(name, text);
      config.fake_location = component_text(feeder);
    };
  };
  return {
      flag("loader",
           "your Python loader, FILE.py:FUNCTION or MODULE:FUNCTION; it returns an iterable of "
           "batches, such as a DataLoader",
           "", option("loader")),
      flag("loader_args", "arguments of that function, such as num_workers=8,batch_size=64", "",
           option("args")),
      flag("python",
           "interpreter that runs the loader, such as /path/to/venv/bin/python; default: that of "
           "the environment of penstock, else that of VIRTUAL_ENV, else python3",
           "", option("python")),
      flag("pixels",
           "entry of a batch that has the pixels, such as image or 0; default: by name and shape",
           "", option("pixels_key")),
      flag("labels",
           "entry of a batch that has the labels, such as label or 1; default: by name and shape",
           "", option("labels_key")),
      flag("batch_samples", "samples of a batch without images: number, or entry with one each", "",
           option("samples")),
      flag("count",
           "counts in place of samples: [UNIT=]KEY, an entry or a function of the loader's file",
           "", option("count"))};
}

void apply_like_of(RunConfig& config, std::span<const std::string> arguments) {
  if (const auto system = typed_value("like", arguments)) apply_like(config, *system);
  if (is_typed("data_dir", arguments) && !is_typed("fake_location", arguments))
    config.fake_location = "queue";
  const bool has_servers = is_typed("job_name", arguments) || is_typed("job", arguments);
  if (has_servers && !is_typed("variable_update", arguments))
    config.variable_update = "parameter_server";
  for (const char* const other : {"num_iters", "num_batches_per_iter"}) {
    if (!is_typed("num_batches", arguments) || !is_typed(other, arguments)) continue;
    throw ConfigError("--num-batches and --{} exclude each other; keep one", kebab(other));
  }
  for (const char* const depth : {"prefetch", "device_slots"}) {
    if (!is_typed("loader", arguments) || !is_typed(depth, arguments)) continue;
    throw ConfigError(
        "--{} and --loader exclude each other: a loader's run is as deep as its training loop; use "
        "--loop ahead=N",
        kebab(depth));
  }
}

}  // namespace penstock
