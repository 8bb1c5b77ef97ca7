// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "bench/record/json_field.h"
#include "bench/record/result_json.h"
#include "bench/sweep/sweep.h"
#include "dataflow/error.h"

namespace penstock {
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

Status status_of(const JsonField& field) {
  const std::string name = field.text();
  for (const Status status :
       {Status::ok, Status::skipped, Status::failed, Status::partial, Status::draining}) {
    if (to_string(status) == name) return status;
  }
  field.refuse("ok, skipped, failed, partial or draining");
}

StageUse stage_of(const JsonField& field) {
  return {.name = field.at("name").text(),
          .workers = field.at("workers").text(),
          .threads = field.at("threads").count(),
          .images = field.at("images").integer(0),
          .items = field.at("items").integer(0),
          .timed_items = field.at("timed_items").integer(0),
          .cpu_s = field.at("cpu_s").number(),
          .wall_s = field.at("wall_s").number(),
          .wait_in_s = field.at("wait_in_s").number(),
          .wait_out_s = field.at("wait_out_s").number(),
          .bytes = field.at("bytes").integer(0)};
}

QueueUse queue_of(const JsonField& field) {
  return {.name = field.at("name").text(),
          .slots = field.at("slots").count(),
          .mean_filled = field.at("mean_filled").number(),
          .empty_percent = field.at("empty_percent").number(),
          .full_percent = field.at("full_percent").number(),
          .producer_wait_s = field.at("producer_wait_s").number(),
          .consumer_wait_s = field.at("consumer_wait_s").number(),
          .filled = field.at("filled").numbers()};
}

EvaluationReport evaluation_of(const JsonField& field) {
  return {.step = field.at("step").integer(0),
          .images = field.at("images").integer(0),
          .top1 = field.at("top_1_accuracy").number_or_nan(),
          .top5 = field.at("top_5_accuracy").number_or_nan(),
          .seconds = field.at("seconds").amount(),
          .complete = true};
}

RankResult rank_of(const JsonField& field) {
  return {.host = field.at("host").text(),
          .img_per_s = field.at("img_per_s").amount(),
          .window_s = field.at("window_s").amount()};
}

BucketUse bucket_of(const JsonField& field) {
  return {.mib = field.at("mib").amount(),
          .lead_ms = field.at("lead_ms").amount(),
          .exchange_ms = field.at("exchange_ms").amount()};
}

/// Fields that texts of schema 1 may lack. Each was added at another time, so test each.
void read_since_schema_1(const JsonField& field, bool may_lack, RunResult& result) {
  const auto has = [&](const char* name) { return !may_lack || field.has(name); };
  if (has("examples_per_epoch")) {
    result.examples_per_epoch = field.at("examples_per_epoch").amount();
  }
  if (has("device_idle_percent")) {
    result.device_idle_percent = field.at("device_idle_percent").number();
  }
  if (has("device_idle_ms")) result.device_idle_ms = field.at("device_idle_ms").numbers();
  if (has("starved_ms")) result.starved_ms = field.at("starved_ms").numbers();
  if (has("copy_exposed_ms")) result.copy_exposed_ms = field.at("copy_exposed_ms").numbers();
  if (has("late_ms")) result.late_ms = field.at("late_ms").numbers();
  if (has("instrumentation_s")) result.instrumentation_s = field.at("instrumentation_s").amount();
  if (has("losses")) result.losses = field.at("losses").numbers_or_nan();
  if (has("stages")) {
    for (const JsonField& each : field.at("stages").elements())
      result.stages.push_back(stage_of(each));
  }
  if (has("queues")) {
    for (const JsonField& each : field.at("queues").elements())
      result.queues.push_back(queue_of(each));
  }
  if (!has("evaluations")) return;
  for (const JsonField& each : field.at("evaluations").elements())
    result.evaluations.push_back(evaluation_of(each));
}

/// Everything except the configuration, which a sweep stores elsewhere.
RunResult result_of(const JsonField& field, bool may_lack) {
  RunResult result;
  result.status = status_of(field.at("status"));
  result.reason = field.at("reason").text();
  result.exit_code = static_cast<int>(field.at("exit_code").integer(0, 255));
  result.started = field.at("started").text();
  result.img_per_s = field.at("img_per_s").amount();
  result.sustained_img_per_s = field.at("sustained_img_per_s").amount();
  result.window_s = field.at("window_s").amount();
  result.images_per_step = field.at("images_per_step").integer(0);
  result.reserve_start = field.at("reserve_start").number();
  result.reserve_end = field.at("reserve_end").number();
  result.discarded_steps = field.at("discarded_steps").integer(0);
  result.process_cpu_s = field.at("process_cpu_s").number();
  result.staging_cpu_s = field.at("staging_cpu_s").number();
  for (const auto& [name, value] : field.at("facts").members()) {
    if (!value.is_null()) result.facts[name] = value.number();  // null: it was not finite
  }
  for (const auto& [name, value] : field.at("counters").members())
    result.counters[name] = value.integer();
  result.notes = field.at("notes").texts();
  result.step_ms = field.at("step_ms").amounts();
  result.input_wait_ms = field.at("input_wait_ms").numbers();
  if (field.has("ranks")) {
    for (const JsonField& rank : field.at("ranks").elements())
      result.ranks.push_back(rank_of(rank));
  }
  if (field.has("buckets")) {
    for (const JsonField& bucket : field.at("buckets").elements())
      result.buckets.push_back(bucket_of(bucket));
  }
  read_since_schema_1(field, may_lack, result);
  return result;
}

template <typename Value, typename Read>
std::optional<Value> unless_null(const JsonField& field, Read read) {
  return field.is_null() ? std::nullopt : std::optional<Value>(read(field));
}

Environment environment_of(const JsonField& field) {
  const auto text = [](const JsonField& each) { return each.text(); };
  Environment environment;
  environment.cpu_model = field.at("cpu_model").text();
  environment.usable_cores = field.at("usable_cores").count();
  environment.online_cores = field.at("online_cores").count();
  environment.memory_bytes = field.at("memory_bytes").unsigned_integer();
  environment.virtual_machine = field.at("virtual_machine").boolean();
  environment.steal_percent = unless_null<double>(
      field.at("steal_percent"), [](const JsonField& each) { return each.number(); });
  environment.cpu_governor = unless_null<std::string>(field.at("cpu_governor"), text);
  environment.load_average = field.at("load_average").amount();
  if (field.has("busy_percent")) {
    environment.busy_percent = unless_null<double>(
        field.at("busy_percent"), [](const JsonField& each) { return each.amount(); });
  }
  environment.kernel = field.at("kernel").text();
  environment.gpus = field.at("gpus").texts();
  environment.gpu_driver = unless_null<std::string>(field.at("gpu_driver"), text);
  environment.version = field.at("version").text();
  environment.revision = field.at("revision").text();
  environment.compiler = field.at("compiler").text();
  environment.compiler_flags = field.at("compiler_flags").text();
  environment.build_type = field.at("build_type").text();
  for (const auto& [name, value] : field.at("libraries").members())
    environment.libraries[name] = value.text();
  environment.date = field.at("date").text();
  return environment;
}

/// Derives what schema 1 does not say about a row.
void guess_nature(const JsonField& field, Row& row) {
  row.is_ceiling = is_ceiling(row.config);
  if (row.repetitions.empty() && status_of(field.at("status")) == Status::skipped)
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
  return environment_of(JsonField(json, "environment"));
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
  sweep.environment = environment_of(field.at("environment"));
  const JsonField about = field.at("sweep");
  sweep.command = about.at("command").text();
  sweep.seed = about.at("seed").unsigned_integer();
  sweep.repetitions = about.at("repetitions").count();
  sweep.warnings = field.at("warnings").texts();
  for (const JsonField& run : field.at("runs").elements())
    sweep.rows.push_back(row_of(run, is_old));
  if (sweep.rows.empty()) field.at("runs").refuse("at least one row");
  sweep.rounds = rounds_of(about.at("rounds"), sweep.rows.size());
  sweep.varied = is_old ? varied_keys(configurations_of(sweep)) : varied_of(about.at("varied"));
  summarise(sweep);
  return sweep;
}

}  // namespace penstock
