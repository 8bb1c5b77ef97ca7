// SPDX-License-Identifier: Apache-2.0
// penstock project: projects a measured step to more devices by formula, and compares the formula
// with published figures.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/scaling/projection/check.h"
#include "bench/scaling/projection/projection.h"
#include "bench/scaling/scale_runner.h"
#include "bench/sweep/result_folder.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

constexpr std::int32_t kMostRanks = 4096;
constexpr std::size_t kMostExchanges = 5;

struct Arguments {
  scaling::ProjectionPlan plan;
  std::string topology, exchanges = "ring,tree,hierarchical,ps,byteps", out;
  std::string format = "table";
  bool check = false;
};

constexpr FlagGroup flag{"Project"};

double real_between(const std::string& text, std::string_view name, double low, double high) {
  const double value = parse_real(text, name);
  if (value >= low && value <= high) return value;
  throw ConfigError("{} is {}; expected a number from {:g} to {:g}", name, text, low, high);
}

std::string topology_help() {
  std::string text = "target machine, as KEY=VALUE,...:";
  for (const OptionSpec& option : scaling::topology_options()) {
    text += fmt::format(" {} [{}] {};", option.name, option.fallback, option.help);
  }
  text.pop_back();
  return text;
}

void set_overlap(scaling::ProjectionPlan& plan, const std::string& text) {
  if (text == "buckets") {
    plan.hidden_share.reset();
  } else if (text == "none") {
    plan.hidden_share = 0;
  } else {
    plan.hidden_share = real_between(text, "--overlap", 0, 1);
  }
}

std::vector<Flag> project_flags(Arguments& arguments) {
  scaling::ProjectionPlan& plan = arguments.plan;
  const auto real = [](std::string name, std::string help, std::optional<double>& value, double low,
                       double high) {
    const auto set = [&value, typed = flag_of(name), low, high](const std::string& text) {
      value = real_between(text, typed, low, high);
    };
    return flag(std::move(name), std::move(help), "", set);
  };
  return {
      flag.text("topology", topology_help(), arguments.topology),
      flag("ranks", "numbers of ranks to project to", "1,2,4,...,4096",
           [&](const std::string& text) { plan.ranks = scaling::parse_ranks(text); }),
      flag.text("exchange", "ways to exchange gradients", arguments.exchanges),
      flag("overlap",
           "what hides the exchange: buckets (sent as they become ready), none, or a share of "
           "compute such as 0.6",
           "buckets", [&](const std::string& text) { set_overlap(plan, text); }),
      real("jitter_ms",
           "standard deviation of a device's step time in ms; default: that of the record",
           plan.jitter_ms, 0, 1e6),
      real("sigma", "share of the rate left by stragglers, 0 to 1, instead of --jitter-ms",
           plan.sigma, 1e-3, 1),
      real("feeder_img_per_s",
           "images per second that a host's feeder supplies; default: that of the record, if "
           "it was short of input",
           plan.feeder_img_per_s, 1e-3, 1e12),
      flag.text("format", "output format: table, csv or json", arguments.format),
      flag.text("out", "folder for projection.csv, .json and .svg; default: none", arguments.out),
      flag.boolean("check", "compare the formula with published measurements instead",
                   arguments.check)};
}

std::vector<const scaling::ExchangeModel*> find_exchanges(const std::string& text) {
  std::vector<const scaling::ExchangeModel*> found;
  std::vector<std::string> names;
  for (const scaling::ExchangeModel& model : scaling::exchange_models())
    names.emplace_back(model.name);
  std::istringstream pieces(text);
  for (std::string piece; std::getline(pieces, piece, ',');) {
    const auto model =
        std::ranges::find(scaling::exchange_models(), piece, &scaling::ExchangeModel::name);
    if (model == scaling::exchange_models().end()) {
      throw ConfigError("--exchange has '{}'; expected some of {}", piece, join(names));
    }
    if (std::ranges::count(found, &*model) == 0) found.push_back(&*model);
  }
  if (found.empty()) throw ConfigError("--exchange names none of {}", join(names));
  PENSTOCK_ASSERT(found.size() <= kMostExchanges);
  return found;
}

int run_check() {
  std::vector<scaling::CheckedSeries> checked;
  for (const scaling::PublishedSeries& series : scaling::published_scaling())
    checked.push_back(scaling::check(series));
  scaling::write_check_text(checked, std::cout);
  std::cout.flush();
  return 0;
}

std::string json_text(const scaling::Projection& projection) {
  using Json = nlohmann::ordered_json;
  return scaling::to_json(projection).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_files(const scaling::Projection& projection, const std::filesystem::path& folder) {
  const FolderLock lock = lock_results(folder);
  replace_file(folder / "projection.csv", scaling::projection_csv(projection));
  replace_file(folder / "projection.json", json_text(projection));
  replace_file(folder / "projection.svg",
               scaling::projection_figure(projection, {.width = 720, .standalone = true}));
}

void print(const scaling::Projection& projection, const std::string& format) {
  if (format == "csv") {
    std::cout << scaling::projection_csv(projection);
  } else if (format == "json") {
    std::cout << json_text(projection);
  } else {
    scaling::write_projection_text(projection, std::cout);
  }
  std::cout.flush();
}

int run(const Invocation& invocation) {
  Arguments arguments;
  arguments.plan.ranks = scaling::doublings(kMostRanks);
  std::vector<std::string> words;
  if (!parse_flags(
          {.verb = "project",
           .summary = "Projects a measured step to more devices, by formula. RECORD is what "
                      "`penstock run --json` printed.",
           .examples = "project run.json\n"
                       "project run.json --topology devices=4,link=3.125 --ranks 1,4,16,64\n"
                       "project --check",
           .arguments = "RECORD"},
          project_flags(arguments), invocation.arguments, &words)) {
    return 0;
  }
  if (arguments.check) {
    if (words.empty()) return run_check();
    throw ConfigError("--check compares with published figures and takes no record");
  }
  if (words.size() != 1) {
    throw ConfigError(
        "`penstock project` got {} records; expected one, which `penstock run --json` prints, or "
        "--check",
        words.size());
  }
  if (arguments.format != "table" && arguments.format != "csv" && arguments.format != "json") {
    throw ConfigError("--format is '{}'; expected table, csv or json", arguments.format);
  }
  if (arguments.plan.sigma && arguments.plan.jitter_ms) {
    throw ConfigError("--sigma and --jitter-ms exclude each other; keep one");
  }
  arguments.plan.topology = scaling::parse_topology(arguments.topology);
  arguments.plan.exchanges = find_exchanges(arguments.exchanges);
  scaling::Projection projection{
      .command = command_text("project", invocation.arguments),
      .record = words.front(),
      .step = scaling::measured_step(scaling::read_record(words.front())),
      .plan = arguments.plan,
      .rows = {}};
  projection.rows = scaling::project(projection.step, projection.plan);
  if (!arguments.out.empty()) write_files(projection, arguments.out);
  print(projection, arguments.format);
  return 0;
}

}  // namespace

extern constinit const VerbEntry project_verb{
    .name = "project",
    .summary = "project a measured step to up to 4096 devices, by formula",
    .run = run,
};

}  // namespace penstock
