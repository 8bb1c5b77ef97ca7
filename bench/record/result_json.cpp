// SPDX-License-Identifier: Apache-2.0
#include "bench/record/result_json.h"

#include <optional>
#include <string>
#include <utility>

#include "bench/record/field_json.h"
#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// A number or boolean if the text is one in JSON, else a string.
Json scalar(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_number() || parsed.is_boolean() ? parsed : Json(text);
}

Json to_json(const std::optional<Spread>& spread) {
  return spread ? json_of(*spread) : Json{{"median", nullptr}, {"low", nullptr}, {"high", nullptr}};
}

/// Adds the keys of rates of images, which are null if something else is counted.
template <typename Value>
void add_image_rates([[maybe_unused]] const Value& value, bool images, Json& json) {
  detail::for_each_field<Value>([&](const auto& field) {
    if (field.earlier_key.empty()) return;
    json[std::string(field.earlier_key)] = images ? json[std::string(field.key)] : Json(nullptr);
  });
}

/// The fields of a run, with its rates under all their names.
Json run_json(const RunResult& result, const std::string& unit) {
  Json json = json_of(result);
  const bool images = unit == "img";
  json["unit"] = unit;
  add_image_rates(result, images, json);
  for (std::size_t i = 0; i < result.ranks.size(); ++i) {
    add_image_rates(result.ranks[i], images, json["ranks"][i]);
  }
  json["samples_per_s"] = nullptr;
  if (images || unit == "samples") {
    json["samples_per_s"] = json["rate"];
  } else if (const auto counted = fact_of(result, "loader_counted_per_sample")) {
    json["samples_per_s"] = result.img_per_s / *counted;
  }
  return json;
}

Json to_json(const std::optional<statistics::CostEstimate>& cost, bool images) {
  Json json{{"percent", to_json(std::optional<Spread>())},
            {"ms_per_step", nullptr},
            {"rate_lost", nullptr},
            {"img_per_s_lost", nullptr},
            {"verdict", nullptr},
            {"rounds_percent", Json::array()},
            {"ends", nullptr},
            {"definition", kInputCostDefinition}};
  if (cost) {
    const statistics::Estimate& percent = cost->percent;
    json["percent"] = to_json(std::optional(Spread{percent.value, percent.low, percent.high}));
    json["ms_per_step"] = cost->ms_per_step.value;
    json["rate_lost"] = cost->img_per_s_lost.value;
    if (images) json["img_per_s_lost"] = cost->img_per_s_lost.value;
    json["verdict"] = to_string(cost->verdict);
    json["rounds_percent"] = cost->rounds;
    json["ends"] = ends_of(percent);
  }
  return json;
}

Json to_json(const Repetition& repetition, const std::string& unit) {
  Json json{{"round", repetition.round}, {"seed", repetition.result.config.seed}};
  json.update(run_json(repetition.result, unit));
  return json;
}

Json to_json(const std::vector<Repetition>& repetitions, const std::string& unit) {
  Json list = Json::array();
  for (const Repetition& each : repetitions) list.push_back(to_json(each, unit));
  return list;
}

}  // namespace

Json to_json(const RunConfig& config) {
  Json json;
  for (const ConfigKey& key : config_keys()) json[std::string(key.name)] = scalar(key.get(config));
  return json;
}

Json to_json(const RunResult& result) {
  Json json{{"schema", kResultsSchema}, {"config", to_json(result.config)}};
  json.update(run_json(result, result.unit));
  return json;
}

Json to_json(const Environment& environment) { return json_of(environment); }

Json to_json(const SweepResult& sweep, const Row& row) {
  const std::string unit = sample_unit(sweep);
  const bool images = unit == "img";
  const auto if_images = [&](const std::optional<Spread>& rate) {
    return to_json(images ? rate : std::nullopt);
  };
  Json json{{"config", to_json(row.config)},
            {"status", to_string(row.status)},
            {"reason", row.reason},
            {"unit", unit},
            {"rate", to_json(row.img_per_s)},
            {"sustained_rate", to_json(row.sustained_img_per_s)},
            {"img_per_s", if_images(row.img_per_s)},
            {"sustained_img_per_s", if_images(row.sustained_img_per_s)},
            {"input_cost", to_json(row.input_cost, images)},
            {"unresolved", row.unresolved},
            {"sentence", cost_sentence(sweep, row)},
            {"notes", row.notes}};
  if (sweep.steady) {
    json["input_cost"]["definition"] =
        "that of `penstock isolate`: from mean step times without warm-up, paired by block";
  }
  return json;
}

Json to_json(const SweepResult& sweep) {
  Json runs = Json::array();
  for (const Row& row : sweep.rows) {
    Json json = to_json(sweep, row);
    json["is_ceiling"] = row.is_ceiling;
    json["unavailable"] = row.unavailable;
    json["repetitions"] = to_json(row.repetitions, sample_unit(sweep));
    json["set_aside"] = to_json(row.set_aside, sample_unit(sweep));
    runs.push_back(std::move(json));
  }
  Json varied = Json::array();
  for (const ConfigKey* key : sweep.varied) varied.push_back(key->name);
  return Json{{"schema", kResultsSchema},
              {"environment", to_json(sweep.environment)},
              {"sweep", Json{{"command", sweep.command},
                             {"seed", sweep.seed},
                             {"repetitions", sweep.repetitions},
                             {"varied", std::move(varied)},
                             {"steady", sweep.steady},
                             {"rounds", sweep.rounds}}},
              {"warnings", sweep.warnings},
              {"runs", std::move(runs)}};
}

}  // namespace penstock
