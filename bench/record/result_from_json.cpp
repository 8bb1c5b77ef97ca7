// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/config/comparable.h"
#include "bench/record/field_json.h"
#include "bench/record/result_json.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// Throws if this program cannot read the schema.
void check_schema(const JsonField& schema) {
  const std::int64_t number = schema.integer();
  if (number > kResultsSchema) {
    throw DataError(
        "it has the schema {}, and this program reads up to {}: a newer Penstock wrote it; read "
        "it with that one",
        number, kResultsSchema);
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
    const auto key = std::ranges::find(config_keys(), name, &ConfigKey::name);
    if (key == config_keys().end()) {
      throw DataError(
          "{} is no setting of this program: a newer Penstock or another program wrote it",
          value.path());
    }
    if (value.json().is_structured() || value.is_null()) value.refuse("text, a number or a flag");
    try {
      key->set(config, value.json().is_string() ? value.text() : value.json().dump());
    } catch (const ConfigError& error) {
      throw DataError("{} cannot be: {}", value.path(), error.what());
    }
  }
  return config;
}

/// The roles of stages by their names, for records of versions that kept no roles.
constexpr std::pair<std::string_view, StageRole> kRolesOfNames[] = {
    {"read", StageRole::reads_storage}, {"decode", StageRole::decodes},
    {"draw", StageRole::draws},         {"receive", StageRole::receives},
    {"unpack", StageRole::unpacks},     {"copy", StageRole::copies},
    {"load", StageRole::loads},         {"collate", StageRole::collates},
    {"pin", StageRole::pins},           {"get next", StageRole::asks}};

void add_roles(const JsonField& stages, std::vector<StageUse>& uses) {
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (stages.elements()[i].has("role")) continue;
    for (const auto& [name, role] : kRolesOfNames) {
      if (uses[i].name == name) uses[i].role = role;
    }
  }
}

/// Everything except the configuration, which a sweep stores elsewhere.
RunResult result_of(const JsonField& field, bool may_lack) {
  RunResult result;
  read(field, result, Range::any, may_lack);
  if (!result.stages.empty()) add_roles(field.at("stages"), result.stages);
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
    const auto key = std::ranges::find(config_keys(), name.text(), &ConfigKey::name);
    if (key == config_keys().end()) name.refuse("the name of a setting, as in config");
    varied.push_back(&*key);
  }
  return varied;
}

}  // namespace

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

}  // namespace penstock
