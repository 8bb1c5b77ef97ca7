// SPDX-License-Identifier: Apache-2.0
#include "bench/record/result_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "bench/config/comparable.h"
#include "bench/record/fields.h"
#include "bench/record/report_text.h"
#include "dataflow/error.h"

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

Json to_json(const std::optional<statistics::CostEstimate>& cost) {
  Json json{{"percent", to_json(std::optional<Spread>())},
            {"ms_per_step", nullptr},
            {"img_per_s_lost", nullptr},
            {"verdict", nullptr},
            {"rounds_percent", Json::array()},
            {"ends", nullptr},
            {"definition", kInputCostDefinition}};
  if (cost) {
    const statistics::Estimate& percent = cost->percent;
    json["percent"] = to_json(std::optional(Spread{percent.value, percent.low, percent.high}));
    json["ms_per_step"] = cost->ms_per_step.value;
    json["img_per_s_lost"] = cost->img_per_s_lost.value;
    json["verdict"] = to_string(cost->verdict);
    json["rounds_percent"] = cost->rounds;
    json["ends"] = ends_of(percent);
  }
  return json;
}

Json to_json(const Repetition& repetition) {
  Json json{{"round", repetition.round}, {"seed", repetition.result.config.seed}};
  json.update(json_of(repetition.result));
  return json;
}

Json to_json(const std::vector<Repetition>& repetitions) {
  Json list = Json::array();
  for (const Repetition& each : repetitions) list.push_back(to_json(each));
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
  json.update(json_of(result));
  return json;
}

Json to_json(const Environment& environment) { return json_of(environment); }

Json to_json(const SweepResult& sweep, const Row& row) {
  Json json{{"config", to_json(row.config)},
            {"status", to_string(row.status)},
            {"reason", row.reason},
            {"img_per_s", to_json(row.img_per_s)},
            {"sustained_img_per_s", to_json(row.sustained_img_per_s)},
            {"input_cost", to_json(row.input_cost)},
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
    json["repetitions"] = to_json(row.repetitions);
    json["set_aside"] = to_json(row.set_aside);
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

namespace {

using Json = nlohmann::ordered_json;

/// Throws if this program cannot read the schema.
void check_schema(const JsonField& schema) {
  const std::int64_t number = schema.integer();
  if (number > kResultsSchema) {
    throw DataError(fmt::format(
        "it has the schema {}, and this program reads up to {}: a newer Penstock wrote it; read "
        "it with that one",
        number, kResultsSchema));
  }
  if (number < 1) schema.refuse(fmt::format("a schema from 1 to {}", kResultsSchema));
}

/// Earlier versions wrote this key, but no run ever depended on it.
constexpr std::string_view kRetiredKey = "local_parameter_device";

RunConfig config_of(const JsonField& field) {
  RunConfig config;
  config.num_processes = 1;  // files without the key are from runs of one process
  for (const auto& [name, value] : field.members()) {
    if (name == kRetiredKey) continue;
    const std::span<const ConfigKey> keys = config_keys();
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const ConfigKey& each) { return each.name == name; });
    if (key == keys.end()) {
      throw DataError(fmt::format(
          "{} is no setting of this program: a newer Penstock or another program wrote it",
          value.path()));
    }
    if (value.json().is_structured() || value.is_null()) value.refuse("text, a number or a flag");
    try {
      key->set(config, value.json().is_string() ? value.text() : value.json().dump());
    } catch (const ConfigError& error) {
      throw DataError(fmt::format("{} cannot be: {}", value.path(), error.what()));
    }
  }
  return config;
}

/// Everything except the configuration, which a sweep stores elsewhere.
RunResult result_of(const JsonField& field, bool may_lack) {
  RunResult result;
  read(field, result, Range::any, may_lack);
  for (EvaluationReport& evaluation : result.evaluations) evaluation.complete = true;
  return result;
}

/// Derives what schema 1 does not say about a row.
void guess_nature(const JsonField& field, Row& row) {
  row.is_ceiling = is_ceiling(row.config);
  read(field.at("status"), row.status);
  if (row.repetitions.empty() && row.status == Status::skipped)
    row.unavailable = field.at("reason").text();
}

std::vector<Repetition> repetitions_of(const JsonField& field, const RunConfig& config,
                                       bool is_old) {
  std::vector<Repetition> repetitions;
  for (const JsonField& each : field.elements()) {
    Repetition& repetition = repetitions.emplace_back();
    repetition.round = each.at("round").count();
    repetition.result = result_of(each, is_old);
    repetition.result.config = config;
    repetition.result.config.seed = each.at("seed").unsigned_integer();
  }
  return repetitions;
}

Row row_of(const JsonField& field, bool is_old) {
  Row row;
  row.config = config_of(field.at("config"));
  row.repetitions = repetitions_of(field.at("repetitions"), row.config, is_old);
  if (field.has("set_aside")) {
    row.set_aside = repetitions_of(field.at("set_aside"), row.config, is_old);
  }
  if (is_old) {
    guess_nature(field, row);
  } else {
    row.is_ceiling = field.at("is_ceiling").boolean();
    row.unavailable = field.at("unavailable").text();
  }
  return row;
}

std::vector<std::vector<std::size_t>> rounds_of(const JsonField& field, std::size_t rows) {
  std::vector<std::vector<std::size_t>> rounds;
  for (const JsonField& round : field.elements()) {
    rounds.emplace_back();
    for (const JsonField& row : round.elements())
      rounds.back().push_back(
          static_cast<std::size_t>(row.integer(0, static_cast<std::int64_t>(rows) - 1)));
  }
  return rounds;
}

std::vector<RunConfig> configurations_of(const SweepResult& sweep) {
  std::vector<RunConfig> configurations;
  for (const Row& row : sweep.rows) configurations.push_back(row.config);
  return configurations;
}

std::vector<const ConfigKey*> varied_of(const JsonField& field) {
  std::vector<const ConfigKey*> varied;
  for (const JsonField& name : field.elements()) {
    const std::span<const ConfigKey> keys = config_keys();
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const ConfigKey& each) { return each.name == name.text(); });
    if (key == keys.end()) name.refuse("the name of a setting, as in config");
    varied.push_back(&*key);
  }
  return varied;
}

}  // namespace

RunConfig config_from_json(const Json& json) { return config_of(JsonField(json, "config")); }

Environment environment_from_json(const Json& json) {
  Environment environment;
  read(JsonField(json, "environment"), environment);
  return environment;
}

RunResult result_from_json(const Json& json) {
  const JsonField field(json);
  if (!json.is_object() || !field.has("status")) {
    throw DataError("a run's result is not what `penstock run --json` prints: it has no 'status'");
  }
  const bool has_schema = field.has("schema");  // the first versions wrote no schema
  if (has_schema) check_schema(field.at("schema"));
  const bool is_old = !has_schema || field.at("schema").integer() < kResultsSchema;
  RunResult result = result_of(field, is_old);
  result.config = config_of(field.at("config"));
  return result;
}

SweepResult sweep_from_json(const Json& json) {
  const JsonField field(json);
  if (!json.is_object() || !field.has("schema") || !field.has("runs")) {
    throw DataError("it is not what a sweep writes to results.json: 'schema' or 'runs' is missing");
  }
  check_schema(field.at("schema"));
  const bool is_old = field.at("schema").integer() < kResultsSchema;
  SweepResult sweep;
  read(field.at("environment"), sweep.environment);
  const JsonField about = field.at("sweep");
  sweep.command = about.at("command").text();
  sweep.seed = about.at("seed").unsigned_integer();
  sweep.repetitions = about.at("repetitions").count();
  read(field.at("warnings"), sweep.warnings);
  for (const JsonField& run : field.at("runs").elements())
    sweep.rows.push_back(row_of(run, is_old));
  if (sweep.rows.empty()) field.at("runs").refuse("at least one row");
  sweep.rounds = rounds_of(about.at("rounds"), sweep.rows.size());
  sweep.steady = about.has("steady") && about.at("steady").boolean();
  sweep.varied = is_old ? varied_keys(configurations_of(sweep)) : varied_of(about.at("varied"));
  summarise(sweep);
  return sweep;
}

// The JSON Schema of results: their fields from fields.h, and what a sweep adds.

namespace {

using Json = nlohmann::ordered_json;

/// An object with all of `properties`, and no others.
Json object_of(Json properties) {
  Json required = Json::array();
  for (const auto& [name, schema] : properties.items()) required.push_back(name);
  return Json{{"type", "object"},
              {"properties", std::move(properties)},
              {"required", std::move(required)},
              {"additionalProperties", false}};
}

Json said(Json schema, std::string_view meaning) {
  schema["description"] = meaning;
  return schema;
}

Json list_of(Json items, std::string_view meaning) {
  return said(Json{{"type", "array"}, {"items", std::move(items)}}, meaning);
}

Json text(std::string_view meaning) { return said(schema_of<std::string>(), meaning); }

Json text_or_null(std::string_view meaning) {
  return said(schema_of<std::optional<std::string>>(), meaning);
}

Json number_or_null(std::string_view meaning) {
  return said(schema_of<double>(Range::or_unknown), meaning);
}

/// Three numbers, all null if they are not known.
Json spread(std::string_view meaning) {
  Json schema = schema_of<Spread>();
  for (auto& [name, property] : schema["properties"].items()) {
    property["type"] = Json::array({"number", "null"});
  }
  return said(std::move(schema), meaning);
}

Json config_schema() {
  Json properties;
  for (const ConfigKey& key : config_keys()) {
    properties[std::string(key.name)] =
        Json{{"type", Json::array({"string", "number", "boolean"})}, {"description", key.help}};
  }
  return object_of(std::move(properties));
}

/// A run's fields after others.
Json run_schema(Json properties) {
  Json schema = schema_of<RunResult>();
  properties.update(schema["properties"]);
  Json required = object_of(properties)["required"];
  std::erase_if(required.get_ref<Json::array_t&>(), [&](const Json& name) {
    return name == "ranks" || name == "buckets" || name == "operations";
  });
  schema["properties"] = std::move(properties);
  schema["required"] = std::move(required);
  return schema;
}

Json cost_schema() {
  return object_of({{"percent", spread("share of the ceiling's rate that input costs")},
                    {"ms_per_step", number_or_null("how much longer a step takes")},
                    {"img_per_s_lost", number_or_null("rate without input minus rate with it")},
                    {"verdict", text_or_null("whether the cost is above the margin")},
                    {"rounds_percent", list_of(schema_of<double>(), "each round as measured")},
                    {"ends", text_or_null("what low and high of percent are")},
                    {"definition", text("how the cost is computed")}});
}

Json repetition_schema() {
  return run_schema({{"round", said(schema_of<std::int32_t>(), "from 0")},
                     {"seed", said(schema_of<std::uint64_t>(), "of its random numbers")}});
}

Json definition(std::string_view name) {
  return Json::object({{"$ref", "#/$defs/" + std::string(name)}});
}

Json row_schema() {
  const Json run = definition("repetition");
  return object_of(
      {{"config", definition("config")},
       {"status", said(schema_of<Status>(), "of the row: the worst of its repetitions")},
       {"reason", text("why the status is not ok")},
       {"img_per_s", spread("over the repetitions")},
       {"sustained_img_per_s", spread("over the repetitions")},
       {"input_cost", cost_schema()},
       {"unresolved", text("why there is no input cost")},
       {"sentence", text("the cost in words")},
       {"notes", list_of(schema_of<std::string>(), "what a reader should know")},
       {"is_ceiling", said(schema_of<bool>(), "whether the costs of others refer to this row")},
       {"unavailable", text("why this machine cannot run it; empty: it can")},
       {"repetitions", list_of(run, "one run of each round")},
       {"set_aside",
        list_of(
            run,
            "runs of a round that was measured again or left incomplete; no figure counts them")}});
}

Json sweep_schema(const Json& schema) {
  const Json number = schema_of<std::int32_t>();
  const Json sweep = object_of(
      {{"command", text("a command that repeats the sweep")},
       {"seed", said(schema_of<std::uint64_t>(), "of the order of runs")},
       {"repetitions", said(number, "planned for each row")},
       {"varied", list_of(schema_of<std::string>(), "keys that have more than one value")},
       {"steady", said(schema_of<bool>(), "whether rates and costs leave out warm-up")},
       {"rounds", list_of(list_of(number, "rows in the order of their runs"), "the rounds")}});
  return object_of({{"schema", schema},
                    {"environment", definition("environment")},
                    {"sweep", sweep},
                    {"warnings", list_of(schema_of<std::string>(),
                                         "what makes figures of this machine unreliable")},
                    {"runs", list_of(row_schema(), "the rows of the table")}});
}

}  // namespace

Json results_schema() {
  const Json schema{{"const", kResultsSchema}, {"description", "version of this schema"}};
  Json run = run_schema({{"schema", schema}, {"config", definition("config")}});
  run["properties"]["environment"] = definition("environment");
  run["title"] = "a run: what `penstock run --json` prints";
  Json sweep = sweep_schema(schema);
  sweep["title"] = "a sweep: its results.json";
  return Json{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "Results of Penstock"},
              {"anyOf", Json::array({std::move(run), std::move(sweep)})},
              {"$defs",
               {{"config", config_schema()},
                {"environment", schema_of<Environment>()},
                {"repetition", repetition_schema()}}}};
}

}  // namespace penstock
