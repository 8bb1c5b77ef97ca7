// SPDX-License-Identifier: Apache-2.0
// The JSON Schema of results: their fields from fields.h, and what a sweep adds.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "bench/record/field_json.h"
#include "bench/record/result_json.h"

namespace penstock {
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

/// Describes the names that rates of images also have.
template <typename Record>
void add_image_rates(Json& schema) {
  detail::for_each_field<Record>([&](const auto& field) {
    if (field.earlier_key.empty()) return;
    Json& added = schema["properties"][std::string(field.earlier_key)];
    added = said(schema_of<std::optional<double>>(Range::not_negative),
                 fmt::format("{}, if these are images", field.key));
    schema["required"].push_back(field.earlier_key);
  });
}

/// A run's fields after others.
Json run_schema(Json properties) {
  Json schema = schema_of<RunResult>();
  add_image_rates<RunResult>(schema);
  add_image_rates<RankResult>(schema["properties"]["ranks"]["items"]);
  properties["samples_per_s"] = said(schema_of<std::optional<double>>(Range::not_negative),
                                     "rate, in samples if --count counts");
  properties.update(schema["properties"]);
  Json required = object_of(properties)["required"];
  std::erase_if(required.get_ref<Json::array_t&>(), [&](const Json& name) {
    return name == "ranks" || name == "rank_skew" || name == "buckets" || name == "operations";
  });
  schema["properties"] = std::move(properties);
  schema["required"] = std::move(required);
  return schema;
}

Json cost_schema() {
  return object_of({{"percent", spread("share of the ceiling's rate that input costs")},
                    {"ms_per_step", number_or_null("how much longer a step takes")},
                    {"rate_lost", number_or_null("rate without input minus rate with it")},
                    {"img_per_s_lost", number_or_null("rate_lost, if these are images")},
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
       {"unit", text("of the rates, in a second")},
       {"rate", spread("over the repetitions")},
       {"sustained_rate", spread("over the repetitions")},
       {"img_per_s", spread("rate, if these are images")},
       {"sustained_img_per_s", spread("sustained_rate, if these are images")},
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
