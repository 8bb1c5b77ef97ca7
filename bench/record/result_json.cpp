// SPDX-License-Identifier: Apache-2.0
#include "bench/record/result_json.h"

#include <optional>
#include <string>

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
  if (!spread) return Json{{"median", nullptr}, {"low", nullptr}, {"high", nullptr}};
  return Json{{"median", spread->median}, {"low", spread->low}, {"high", spread->high}};
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

Json to_json(const std::vector<EvaluationReport>& evaluations) {
  Json list = Json::array();
  for (const EvaluationReport& each : evaluations) {
    list.push_back(Json{{"step", each.step},
                        {"images", each.images},
                        {"top_1_accuracy", each.top1},
                        {"top_5_accuracy", each.top5},
                        {"seconds", each.seconds}});
  }
  return list;
}

Json to_json(const RankResult& rank) {
  return Json{{"host", rank.host}, {"img_per_s", rank.img_per_s}, {"window_s", rank.window_s}};
}

Json to_json(const BucketUse& bucket) {
  return Json{
      {"mib", bucket.mib}, {"lead_ms", bucket.lead_ms}, {"exchange_ms", bucket.exchange_ms}};
}

Json to_json(const StageUse& stage) {
  return Json{{"name", stage.name},           {"workers", stage.workers},
              {"threads", stage.threads},     {"images", stage.images},
              {"items", stage.items},         {"timed_items", stage.timed_items},
              {"cpu_s", stage.cpu_s},         {"wall_s", stage.wall_s},
              {"wait_in_s", stage.wait_in_s}, {"wait_out_s", stage.wait_out_s},
              {"bytes", stage.bytes}};
}

Json to_json(const QueueUse& queue) {
  return Json{{"name", queue.name},
              {"slots", queue.slots},
              {"mean_filled", queue.mean_filled},
              {"empty_percent", queue.empty_percent},
              {"full_percent", queue.full_percent},
              {"producer_wait_s", queue.producer_wait_s},
              {"consumer_wait_s", queue.consumer_wait_s},
              {"filled", queue.filled}};
}

/// The JSON of the run without its configuration, which the row holds.
Json to_json(const Repetition& repetition) {
  Json json{{"round", repetition.round}, {"seed", repetition.result.config.seed}};
  Json result = to_json(repetition.result);
  result.erase("config");
  result.erase("schema");
  json.update(result);
  return json;
}

template <typename T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

Json to_json(const RunConfig& config) {
  Json json;
  for (const ConfigKey& key : config_keys()) json[std::string(key.name)] = scalar(key.get(config));
  return json;
}

Json to_json(const RunResult& result) {
  Json json{{"schema", kResultsSchema},
            {"config", to_json(result.config)},
            {"status", to_string(result.status)},
            {"reason", result.reason},
            {"exit_code", result.exit_code},
            {"started", result.started},
            {"img_per_s", result.img_per_s},
            {"sustained_img_per_s", result.sustained_img_per_s},
            {"device_idle_percent", result.device_idle_percent},
            {"window_s", result.window_s},
            {"images_per_step", result.images_per_step},
            {"examples_per_epoch", result.examples_per_epoch},
            {"reserve_start", result.reserve_start},
            {"reserve_end", result.reserve_end},
            {"discarded_steps", result.discarded_steps},
            {"process_cpu_s", result.process_cpu_s},
            {"staging_cpu_s", result.staging_cpu_s},
            {"facts", result.facts},
            {"counters", result.counters},
            {"notes", result.notes},
            {"step_ms", result.step_ms},
            {"input_wait_ms", result.input_wait_ms},
            {"device_idle_ms", result.device_idle_ms},
            {"starved_ms", result.starved_ms},
            {"copy_exposed_ms", result.copy_exposed_ms},
            {"late_ms", result.late_ms},
            {"stages", list_of(result.stages)},
            {"queues", list_of(result.queues)},
            {"instrumentation_s", result.instrumentation_s},
            {"losses", result.losses},
            {"evaluations", to_json(result.evaluations)}};
  for (const RankResult& rank : result.ranks) json["ranks"].push_back(to_json(rank));
  for (const BucketUse& bucket : result.buckets) json["buckets"].push_back(to_json(bucket));
  return json;
}

Json to_json(const Environment& environment) {
  return Json{{"cpu_model", environment.cpu_model},
              {"usable_cores", environment.usable_cores},
              {"online_cores", environment.online_cores},
              {"memory_bytes", environment.memory_bytes},
              {"virtual_machine", environment.virtual_machine},
              {"steal_percent", or_null(environment.steal_percent)},
              {"cpu_governor", or_null(environment.cpu_governor)},
              {"load_average", environment.load_average},
              {"busy_percent", or_null(environment.busy_percent)},
              {"kernel", environment.kernel},
              {"gpus", environment.gpus},
              {"gpu_driver", or_null(environment.gpu_driver)},
              {"version", environment.version},
              {"revision", environment.revision},
              {"compiler", environment.compiler},
              {"compiler_flags", environment.compiler_flags},
              {"build_type", environment.build_type},
              {"libraries", environment.libraries},
              {"date", environment.date}};
}

Json to_json(const SweepResult& sweep, const Row& row) {
  return Json{{"config", to_json(row.config)},
              {"status", to_string(row.status)},
              {"reason", row.reason},
              {"img_per_s", to_json(row.img_per_s)},
              {"sustained_img_per_s", to_json(row.sustained_img_per_s)},
              {"input_cost", to_json(row.input_cost)},
              {"unresolved", row.unresolved},
              {"sentence", cost_sentence(sweep, row)},
              {"notes", row.notes}};
}

Json to_json(const SweepResult& sweep) {
  Json runs = Json::array();
  for (const Row& row : sweep.rows) {
    Json json = to_json(sweep, row);
    json["is_ceiling"] = row.is_ceiling;
    json["unavailable"] = row.unavailable;
    json["repetitions"] = Json::array();
    for (const Repetition& repetition : row.repetitions) {
      json["repetitions"].push_back(to_json(repetition));
    }
    json["set_aside"] = Json::array();
    for (const Repetition& repetition : row.set_aside) {
      json["set_aside"].push_back(to_json(repetition));
    }
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
                             {"rounds", sweep.rounds}}},
              {"warnings", sweep.warnings},
              {"runs", std::move(runs)}};
}

}  // namespace penstock
