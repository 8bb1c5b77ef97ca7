// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_json.h"

#include <nlohmann/json.hpp>

#include "bench/isolate/answer.h"
#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"
#include "bench/record/result_json.h"

namespace penstock::isolate {

namespace {

using isolate::to_json;  // of estimates

using Json = nlohmann::ordered_json;

Json to_json(const analysis::CostSplit& split) {
  return Json{{"total_ms", to_json(split.total_ms)},
              {"starvation_ms", to_json(split.starvation_ms)},
              {"transfer_ms", to_json(split.transfer_ms)},
              {"interference_ms", to_json(split.interference_ms)},
              {"residual_ms", split.residual_ms}};
}

Json to_json(const analysis::InputCostFinding& cost) {
  return Json{{"ceiling_img_per_s", to_json(cost.ceiling_img_per_s)},
              {"coupled_img_per_s", to_json(cost.coupled_img_per_s)},
              {"percent", to_json(cost.percent)},
              {"img_per_s_lost", to_json(cost.img_per_s_lost)},
              {"split", to_json(cost.split)},
              {"verdict", to_string(cost.verdict)},
              {"ms_per_step", to_json(cost.ms_per_step)},
              {"blocks_percent", cost.rounds},
              {"more_blocks", cost.more_rounds}};
}

Json to_json(const analysis::StageFinding& stage) {
  return Json{{"name", stage.name},
              {"workers", stage.workers},
              {"capacity_img_per_s", stage.capacity_img_per_s},
              {"utilisation_percent", stage.utilisation_percent},
              {"busy_percent", stage.busy_percent},
              {"waits_in_percent", stage.waits_in_percent},
              {"waits_out_percent", stage.waits_out_percent},
              {"cpu_us_per_image", stage.cpu_us_per_image},
              {"wall_us_per_image", stage.wall_us_per_image},
              {"storage_us_per_image",
               stage.storage_us_per_image ? Json(*stage.storage_us_per_image) : Json(nullptr)},
              {"bytes_per_image", stage.bytes_per_image}};
}

Json to_json(const CodeShare& share) {
  return Json{{"name", share.name}, {"percent", share.percent}};
}

Json to_json(const SlowSample& sample) { return {{"index", sample.index}, {"ms", sample.ms}}; }

Json to_json(const Prediction& prediction) {
  return Json{{"change", prediction.change}, {"img_per_s", prediction.img_per_s}};
}

Json to_json(const Verification& verification) {
  return Json{{"change", verification.change},
              {"predicted_img_per_s", verification.predicted_img_per_s},
              {"achieved_img_per_s", to_json(verification.achieved_img_per_s)},
              {"error_percent", verification.error_percent},
              {"agrees", verification.agrees}};
}

Json to_json(const statistics::ScalingPoint& point) {
  return Json{{"threads", point.threads}, {"img_per_s", point.img_per_s}};
}

Json to_json(const statistics::ScalingLaw& law) {
  const std::optional<double> peak = law.peak_threads();
  return Json{{"lambda", law.lambda},
              {"sigma", law.sigma},
              {"kappa", law.kappa},
              {"peak_threads", peak ? Json(*peak) : Json(nullptr)}};
}

Json to_json(const statistics::ThreadsNeeded& needed) {
  return Json{{"reachable", needed.reachable},
              {"threads", to_json(needed.threads)},
              {"whole", needed.whole},
              {"peak_img_per_s", to_json(needed.peak_img_per_s)},
              {"measured_to", needed.measured_to},
              {"thread_counts", needed.thread_counts},
              {"known", needed.known}};
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_arithmetic_v<T>) {
    return *value;
  } else {
    return to_json(*value);
  }
}

Json to_json(const RungFinding& rung) {
  return Json{{"name", rung.name},
              {"adds", rung.adds},
              {"row", rung.row},
              {"cost", or_null(rung.cost)},
              {"added_ms", or_null(rung.added_ms)},
              {"supply_img_per_s", or_null(rung.supply_img_per_s)},
              {"unavailable", rung.unavailable},
              {"part", rung.part == Side::none ? "" : to_string(rung.part)},
              {"branch", rung.branch}};
}

Json to_json(const DeliveryPart& part) {
  return Json{{"name", part.name},
              {"side", to_string(part.side)},
              {"ms", to_json(part.ms)},
              {"percent", part.percent}};
}

Json to_json(const SettingFinding& setting) {
  return Json{{"setting", setting.change},
              {"img_per_s", or_null(setting.img_per_s)},
              {"unavailable", setting.unavailable}};
}

Json to_json(const Figure& figure) {
  return Json{
      {"value", figure.value}, {"low", figure.low}, {"high", figure.high}, {"ends", figure.ends}};
}

Json to_json(const SettingChange& change) {
  return Json{{"kind", to_string(change.kind)},
              {"name", change.name},
              {"value", change.value},
              {"now", change.now.empty() ? Json(nullptr) : Json(change.now)}};
}

Json to_json(const RuledOut& ruled_out) {
  return Json{{"kind", to_string(ruled_out.kind)},
              {"name", ruled_out.name},
              {"figure", to_json(ruled_out.figure)},
              {"limit", ruled_out.limit}};
}

Json to_json(const Candidate& candidate);

template <typename T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

Json to_json(const DeliveryFinding& found) {
  return Json{{"blame", to_string(found.blame)},
              {"timed", found.timed},
              {"clocks", found.clocks},
              {"not_known", found.not_known},
              {"parts", list_of(found.parts)},
              {"producers", found.producers},
              {"came_img_per_s", found.came_img_per_s},
              {"making_percent", or_null(found.making_percent)},
              {"held_percent", or_null(found.held_percent)},
              {"receiving_percent", found.receiving_percent},
              {"waits_in_percent", found.waits_in_percent},
              {"waits_out_percent", found.waits_out_percent},
              {"batches_ready", or_null(found.ready)},
              {"batches_under_way", or_null(found.under_way)},
              {"batches_in_ring", found.in_ring},
              {"ring_slots", found.ring_slots},
              {"producers_img_per_s", or_null(found.producers_img_per_s)},
              {"transport_img_per_s", or_null(found.transport_img_per_s)},
              {"consumer_img_per_s", or_null(found.consumer_img_per_s)}};
}

Json to_json(const Candidate& candidate) {
  return Json{{"settings", list_of(candidate.settings)},
              {"text", candidate.text},
              {"img_per_s", candidate.img_per_s},
              {"gain_percent", to_json(candidate.gain_percent)},
              {"basis", to_string(candidate.basis)}};
}

Json to_json(const Answer& answer) {
  return Json{{"cause",
               {{"kind", to_string(answer.cause.kind)},
                {"where", answer.cause.where},
                {"share_percent", answer.cause.share_percent}}},
              {"candidates", list_of(answer.candidates)},
              {"ruled_out", list_of(answer.ruled_out)},
              {"next", to_string(answer.next)},
              {"done", answer.done}};
}

/// The same values, whose names say rate in place of img_per_s.
Json with_names_of_rates(const Json& json) {
  constexpr std::string_view kImages = "img_per_s";
  if (!json.is_structured()) return json;
  Json renamed = json.is_array() ? Json::array() : Json::object();
  for (const auto& [key, value] : json.items()) {
    if (json.is_array()) {
      renamed.push_back(with_names_of_rates(value));
      continue;
    }
    std::string name = key;
    if (const auto at = name.find(kImages); at != name.npos)
      name.replace(at, kImages.size(), "rate");
    renamed[name] = with_names_of_rates(value);
  }
  return renamed;
}

}  // namespace

Json to_json(const statistics::Estimate& estimate) {
  return Json{{"value", estimate.value},
              {"low", estimate.low},
              {"high", estimate.high},
              {"samples", estimate.samples},
              {"ends", ends_of(estimate)}};
}

Json to_json(const EpochEdges& epochs) {
  return Json{{"steps_per_epoch", epochs.steps_per_epoch},
              {"edges_seen", epochs.seen},
              {"steady_ms", epochs.steady_ms},
              {"edge_longer_ms", epochs.longer_ms},
              {"first_batch_s", epochs.first_batch_s}};
}

Json to_json(const BlockNoise& noise) {
  return Json{{"block", noise.block},
              {"steal_percent", noise.steal_percent},
              {"cpu_pressure_percent", or_null(noise.cpu_pressure_percent)},
              {"io_pressure_percent", or_null(noise.io_pressure_percent)},
              {"foreign_cpu_percent", noise.foreign_cpu_percent},
              {"mhz_low", or_null(noise.mhz_low)},
              {"mhz_high", or_null(noise.mhz_high)},
              {"throttled", noise.throttled},
              {"noisy", noise.noisy()}};
}

Json to_json(const Isolation& found) {
  const std::string unit = sample_unit(found.measurement.sweep);
  Json json{
      {"schema", 1},
      {"kind", "isolation"},
      {"unit", unit},
      {"verdict", found.verdict},
      {"answer", to_json(answer_of(found))},
      {"doubts", found.warnings},
      {"cures", texts_of(found.predictions.recommendations)},
      {"blocks", found.blocks},
      {"measured_blocks", found.measurement.measured_blocks},
      {"stopped_because", found.measurement.stopped_because},
      {"ceiling_row", found.measurement.ceiling_row},
      {"coupled_row", found.measurement.coupled_row},
      {"supply_row", or_null(found.measurement.supply_row)},
      {"cost", or_null(found.cost)},
      {"cost_if_waiting", or_null(found.cost_if_waiting)},
      {"supply_img_per_s", or_null(found.supply_img_per_s)},
      {"epochs", to_json(found.epochs)},
      {"delivery", found.delivery ? to_json(*found.delivery) : Json(nullptr)},
      {"stages", list_of(found.diagnosis.stages)},
      {"bottleneck", or_null(found.diagnosis.bottleneck)},
      {"next_bottleneck", or_null(found.diagnosis.next_bottleneck)},
      {"gain_until_next", found.diagnosis.gain_until_next},
      {"supply_curve", list_of(found.predictions.supply_curve)},
      {"scaling_law", or_null(found.predictions.law)},
      {"cores_per_device", or_null(found.predictions.cores_per_device)},
      {"waits", penstock::to_json(found.waits)},
      {"code", found.code ? list_of(found.code->shares) : Json(nullptr)},
      {"code_states", found.code ? list_of(found.code->states) : Json(nullptr)},
      {"slowest_samples", found.code ? list_of(found.code->slowest) : Json(nullptr)},
      {"profile_cost_percent", found.code ? to_json(found.code->cost_percent) : Json(nullptr)},
      {"depths", list_of(found.predictions.depths)},
      {"settings", found.variation ? list_of(found.variation->settings) : Json(nullptr)},
      {"best_setting", found.variation ? or_null(found.variation->best) : Json(nullptr)},
      {"verification", or_null(found.verification)},
      {"ladder", list_of(found.ladder)},
      {"noise", list_of(found.measurement.noise)},
      {"instrumentation_percent", found.diagnosis.instrumentation_percent}};
  if (unit != "img") json = with_names_of_rates(json);
  json["sweep"] = penstock::to_json(found.measurement.sweep);
  return json;
}

}  // namespace penstock::isolate
