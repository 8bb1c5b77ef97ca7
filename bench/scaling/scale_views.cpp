// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/scale_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "bench/document/document.h"
#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"
#include "bench/record/result_json.h"
#include "bench/report/figures/figures.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock::scaling {

namespace {

/// "a:2,b:2", or "this machine".
std::string where_text(const Rung& rung) {
  return rung.hosts.empty() ? "this machine" : to_text(rung.hosts);
}

std::string status_of(const Rung& rung) {
  if (!rung.failures.empty()) {
    return fmt::format("failed, exit code {}", rung.failures.front().exit_code);
  }
  if (rung.runs.empty()) return "did not run";
  const bool draining =
      std::ranges::find(rung.runs, Status::draining, &RunResult::status) != rung.runs.end();
  return draining ? "draining" : "ok";
}

std::vector<std::string> cells_of(const Rung& rung, const std::optional<IdealRate>& ideal) {
  std::vector<std::string> cells{
      fmt::format("{}", rung.ranks), where_text(rung), "-", "-", "-", status_of(rung)};
  if (const std::optional<Spread> rate = rung.img_per_s()) {
    const double lossless = ideal->per_device_img_per_s * static_cast<double>(rung.devices());
    cells[2] = format_spread(*rate, 1);
    cells[3] = format_fixed(lossless, 1);
    cells[4] = format_fixed(100 * rate->median / lossless, 1);
  }
  return cells;
}

using Json = nlohmann::ordered_json;
constexpr int kSchema = 1;

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const Rung& rung, const std::optional<IdealRate>& ideal) {
  Json hosts = Json::array(), failures = Json::array();
  for (const Host& host : rung.hosts) {
    hosts.push_back(Json{{"name", host.name}, {"address", host.address}, {"ranks", host.slots}});
  }
  for (const RungFailure& failure : rung.failures) {
    failures.push_back(Json{{"repetition", failure.repetition},
                            {"exit_code", failure.exit_code},
                            {"reason", failure.reason},
                            {"last_words", failure.last_words}});
  }
  Json json{{"ranks", rung.ranks},
            {"devices", rung.devices()},
            {"hosts", std::move(hosts)},
            {"ran_on", rung.ran_on()},
            {"img_per_s_median", nullptr},
            {"img_per_s_low", nullptr},
            {"img_per_s_high", nullptr},
            {"ideal_img_per_s", nullptr},
            {"efficiency", nullptr},
            {"repetitions", rung.runs.size()},
            {"failures", std::move(failures)},
            {"command", rung.command}};
  if (const std::optional<Spread> rate = rung.img_per_s()) {
    json["img_per_s_median"] = rate->median;
    json["img_per_s_low"] = rate->low;
    json["img_per_s_high"] = rate->high;
    const double lossless = ideal->per_device_img_per_s * static_cast<double>(rung.devices());
    json["ideal_img_per_s"] = lossless;
    json["efficiency"] = rate->median / lossless;
  }
  return json;
}

/// The text in the unit of the runs' rates.
std::string in_unit(const ScaleResult& result, std::string text) {
  for (const Rung& rung : result.rungs) {
    if (!rung.runs.empty()) return in_unit_of(rung.runs.front().config, std::move(text));
  }
  return text;
}

void write_rung(const Rung& rung, const std::filesystem::path& folder, const std::string& name) {
  if (rung.runs.empty()) return;
  const std::filesystem::path path = folder / fmt::format("{}_g{}", name, rung.devices());
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw DataError("cannot make '{}': {}", path.native(), error.message());
  }
  std::string runs;
  for (const RunResult& run : rung.runs) runs += dump(penstock::to_json(run), -1) + "\n";
  replace_file(path / "runs.json", runs);
  replace_file(
      path / "imagespersec",
      fmt::format("{:.3f}\n", rung.img_per_s()->median / static_cast<double>(rung.devices())));
}

std::string figure_of_images(const ScaleResult& result, const report::FigureSize& size) {
  report::Curve measured{.name = "measured: " + result.what, .marked = true, .points = {}};
  report::Curve ideal_curve{.name = "ideal", .look = report::CurveLook::ideal, .points = {}};
  const std::optional<IdealRate> ideal = ideal_rate(result);
  std::string description = fmt::format("Images per second over devices, {}. ", result.name());
  for (const Rung& rung : result.rungs) {
    const std::optional<Spread> rate = rung.img_per_s();
    if (!rate) continue;
    const auto devices = static_cast<double>(rung.devices());
    measured.points.push_back({devices, rate->median, rate->low, rate->high});
    const double lossless = devices * ideal->per_device_img_per_s;
    ideal_curve.points.push_back({devices, lossless, lossless, lossless});
    description += fmt::format("{} devices: {:.1f} img/s, ideal {:.1f}. ", rung.devices(),
                               rate->median, lossless);
  }
  return report::scaling_curves_figure(
      {.title = fmt::format("{}, batch {} per device", result.model, result.batch_size),
       .description = description,
       .ranks_title = "number of devices",
       .value_title = "images/sec",
       .stamp = {},
       .from_origin = true,
       .curves = {std::move(measured), std::move(ideal_curve)}},
      size);
}

void write_text_of_images(const ScaleResult& result, std::ostream& out) {
  out << fmt::format("{}, batch {} per device; {}; at most {} run{} of each.\n\n", result.model,
                     result.batch_size, result.what, result.repetitions,
                     result.repetitions == 1 ? "" : "s");
  const std::optional<IdealRate> ideal = ideal_rate(result);
  document::Table table{
      {{"ranks", true}, {"hosts"}, {"img/s"}, {"ideal", true}, {"efficiency %", true}, {"status"}},
      {}};
  for (const Rung& rung : result.rungs) table.rows.push_back(cells_of(rung, ideal));
  document::write_text(table, out);
  out << "\nimg/s: images that all ranks trained over the longest of their windows, measured; "
         "median of the repetitions (lowest..highest).\n";
  if (ideal) {
    out << fmt::format(
        "ideal: {:.2f} img/s, what each of {} device{} reached, times the devices.\n",
        ideal->per_device_img_per_s, ideal->devices, ideal->devices == 1 ? "" : "s");
  }
  for (const Rung& rung : result.rungs) {
    for (const RungFailure& failure : rung.failures) {
      out << fmt::format("{} rank{}: repetition {} failed, exit code {}: {}\n", rung.ranks,
                         rung.ranks == 1 ? "" : "s", failure.repetition + 1, failure.exit_code,
                         failure.reason);
    }
  }
  for (const std::string& note : result.notes) out << "note: " << note << ".\n";
  for (const std::string& note : notes_about_machines(result)) out << "note: " << note << ".\n";
}

}  // namespace

void write_scale_text(const ScaleResult& result, std::ostream& out) {
  std::ostringstream text;
  write_text_of_images(result, text);
  out << in_unit(result, text.str());
}

void ScaleProgress::run_begins(const Rung& rung, std::int32_t repetition) {
  where_ = fmt::format("[{}/{}] round {}: {} rank{} on {}", ++begun_, runs_, repetition + 1,
                       rung.ranks, rung.ranks == 1 ? "" : "s", where_text(rung));
  line_.pass(where_.substr(0, line_.width()));
}

void ScaleProgress::run_ended(const Rung& rung, bool stopped) {
  if (stopped) {
    line_.print(where_ + ": stopped");
  } else if (!rung.failures.empty()) {
    const RungFailure& failure = rung.failures.back();
    line_.print(fmt::format("{}: failed, exit code {}: {}; going on with the next", where_,
                            failure.exit_code, failure.reason));
  } else {
    const RunResult& run = rung.runs.back();
    line_.print(in_unit_of(run.config, fmt::format("{}: {:.1f} img/s", where_, run.img_per_s)));
  }
}

void ScaleProgress::result_changed(const ScaleResult& result) {
  saver_.save([&] { write_scale_files(result, folder_); },
              [this](const std::string& text) { line_.print(text); });
}

std::string rates_csv(const ScaleResult& result) {
  std::string text;
  for (const Rung& rung : result.rungs) {
    const std::optional<Spread> rate = rung.img_per_s();
    if (rate) text += fmt::format("{},{:.3f}\n", rung.devices(), rate->median);
  }
  return text;
}

std::string ideal_csv(const ScaleResult& result) {
  std::string text;
  const std::optional<IdealRate> ideal = ideal_rate(result);
  for (const Rung& rung : result.rungs) {
    if (rung.runs.empty()) continue;
    const auto devices = static_cast<double>(rung.devices());
    text += fmt::format("{},{:.3f}\n", rung.devices(), devices * ideal->per_device_img_per_s);
  }
  return text;
}

Json to_json(const ScaleResult& result) {
  const std::optional<IdealRate> ideal = ideal_rate(result);
  Json rungs = Json::array();
  for (const Rung& rung : result.rungs) rungs.push_back(to_json(rung, ideal));
  Json json{{"schema", kSchema},
            {"command", result.command},
            {"environment", penstock::to_json(result.environment)},
            {"model", result.model},
            {"batch_size", result.batch_size},
            {"what", result.what},
            {"repetitions", result.repetitions},
            {"ideal", nullptr},
            {"notes", result.notes},
            {"rungs", std::move(rungs)}};
  for (std::string& note : notes_about_machines(result)) json["notes"].push_back(std::move(note));
  if (ideal) {
    json["ideal"] = Json{{"from_devices", ideal->devices},
                         {"img_per_s_per_device", ideal->per_device_img_per_s}};
  }
  return json;
}

void write_scale_files(const ScaleResult& result, const std::filesystem::path& folder) {
  const std::string name = result.name();
  replace_file(folder / (name + ".csv"), rates_csv(result));
  replace_file(folder / (name + ".csv.ideal"), ideal_csv(result));
  replace_file(folder / (name + ".svg"),
               in_unit(result, figure_of_images(result, {.width = 720, .standalone = true})));
  replace_file(folder / (name + ".json"), dump(to_json(result), 1) + "\n");
  for (const Rung& rung : result.rungs) write_rung(rung, folder, name);
}

}  // namespace penstock::scaling
