// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/plan_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/machine/output_file.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {
namespace {

using Json = nlohmann::json;

/// Version of the file's format. Change it when the fields of a choice, the meaning of a graph's
/// text or the way of timing change.
constexpr int kFormat = 4;
/// Time between two writes of a growing book.
constexpr Nanoseconds kSavePeriod = std::chrono::seconds(2);

std::string key_of(const DnnGraph& graph, const PlanRules& rules) {
  return fmt::format("{}{}{}{} {}", rules.allow_tf32 ? "tf32 " : "",
                     rules.deterministic ? "" : "any-order ",
                     rules.reduced_precision ? "short-sums " : "",
                     rules.autotune ? "timed" : "first", to_text(graph));
}

std::string file_name(std::string device) {
  for (char& c : device) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  }
  return fmt::format("gpu-plans-{}.json", device);
}

Json to_json(const EngineChoice& choice) {
  Json knobs = Json::array();
  for (const EngineChoice::Knob& knob : choice.knobs) knobs.push_back({knob.type, knob.value});
  return {{"engine", choice.engine}, {"knobs", std::move(knobs)}};
}

Json to_json(const PlanChoice& choice) {
  Json json = to_json(choice.engine);
  json["workspace_bytes"] = choice.workspace_bytes;
  json["us"] = choice.microseconds;
  json["excluded_bytes"] = choice.excluded_bytes;
  return json;
}

const Json& map_at(const Json& json, const char* key) {
  const Json& map = json.at(key);
  if (!map.is_object()) throw std::range_error("not a map");
  return map;
}

/// Accepts only whole numbers: others would be truncated. Throws Json::exception or
/// std::range_error.
std::int64_t whole(const Json& json) {
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) {
    throw std::range_error("too large");
  }
  if (!json.is_number_integer()) throw std::range_error("not a whole number");
  return json.get<std::int64_t>();
}

EngineChoice engine_from(const Json& json) {
  EngineChoice choice{.engine = whole(json.at("engine")), .knobs = {}};
  const Json& knobs = json.at("knobs");
  if (!knobs.is_array()) throw std::range_error("no list of knobs");
  for (const Json& knob : knobs) choice.knobs.push_back({whole(knob.at(0)), whole(knob.at(1))});
  return choice;
}

PlanChoice choice_from(const Json& json) {
  return {.engine = engine_from(json),
          .workspace_bytes = static_cast<std::size_t>(whole(json.at("workspace_bytes"))),
          .microseconds = json.at("us").get<double>(),
          .excluded_bytes = static_cast<std::size_t>(whole(json.at("excluded_bytes")))};
}

}  // namespace

PlanBook::PlanBook(const DeviceFacts& facts, std::filesystem::path directory,
                   std::function<Time()> now)
    : device_(fmt::format("{} sm_{} {} SMs", facts.name, facts.capability, facts.multiprocessors)),
      version_(facts.dnn_version),
      now_(std::move(now)),
      saved_(now_()) {
  if (directory.empty()) return;
  path_ = std::move(directory) / file_name(facts.name);
  const InputFile file(path_);
  if (file) contents_ = parse_plan_book(file.text(), device_, version_);
}

PlanBookContents parse_plan_book(std::string_view text, std::string_view device,
                                 std::string_view version) {
  PlanBookContents contents;
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat || json.at("device") != device ||
        json.at("dnn_version") != version) {
      return {};
    }
    for (const auto& [key, value] : map_at(json, "plans").items()) {
      contents.choices[key] = choice_from(value);
    }
    for (const auto& [key, bytes] : map_at(json, "without_engine").items()) {
      contents.without_engine[key] = static_cast<std::size_t>(whole(bytes));
    }
    for (const auto& [graph, engines] : map_at(json, "failed_engines").items()) {
      for (const Json& engine : engines) {
        contents.failed_engines[graph].push_back(engine_from(engine));
      }
    }
    const Json& rate = json.at("copy_bytes_per_us");
    if (!rate.is_null()) contents.copy_rate = rate.get<double>();
    if (contents.copy_rate && !(*contents.copy_rate > 0)) return {};
  } catch (const Json::exception&) {
    return {};
  } catch (const std::range_error&) {
    return {};
  }
  return contents;
}

std::optional<PlanChoice> PlanBook::find(const DnnGraph& graph, const PlanRules& rules) const {
  const auto found = contents_.choices.find(key_of(graph, rules));
  if (found == contents_.choices.end()) return {};
  const PlanChoice& choice = found->second;
  const bool limit_rose =
      choice.excluded_bytes > 0 && choice.excluded_bytes <= rules.workspace_limit;
  if (choice.workspace_bytes > rules.workspace_limit || limit_rose ||
      has_failed(graph, choice.engine)) {
    return {};
  }
  return choice;
}

void PlanBook::add(const DnnGraph& graph, const PlanRules& rules, const PlanChoice& choice) {
  contents_.choices[key_of(graph, rules)] = choice;
  save_now_and_then();
}

bool PlanBook::lacks_engine(const DnnGraph& graph, const PlanRules& rules) const {
  const auto found = contents_.without_engine.find(key_of(graph, rules));
  return found != contents_.without_engine.end() && rules.workspace_limit <= found->second;
}

void PlanBook::add_lack(const DnnGraph& graph, const PlanRules& rules) {
  contents_.without_engine[key_of(graph, rules)] = rules.workspace_limit;
  save_now_and_then();
}

bool PlanBook::has_failed(const DnnGraph& graph, const EngineChoice& engine) const {
  const auto found = contents_.failed_engines.find(to_text(graph));
  return found != contents_.failed_engines.end() &&
         std::ranges::find(found->second, engine) != found->second.end();
}

void PlanBook::add_failure(const DnnGraph& graph, const EngineChoice& engine) {
  if (has_failed(graph, engine)) return;
  contents_.failed_engines[to_text(graph)].push_back(engine);
  save_now_and_then();
}

void PlanBook::forget_lack(const DnnGraph& graph, const PlanRules& rules) {
  contents_.without_engine.erase(key_of(graph, rules));
  contents_.failed_engines.erase(to_text(graph));
  changed_ = true;
}

void PlanBook::set_copy_rate(double bytes_per_microsecond) {
  contents_.copy_rate = bytes_per_microsecond;
  save_now_and_then();
}

void PlanBook::save_now_and_then() {
  changed_ = true;
  if (now_() - saved_ >= kSavePeriod) save();
}

void PlanBook::save() noexcept {
  if (path_.empty() || !changed_) return;
  try {
    saved_ = now_();
    Json plans = Json::object(), failed = Json::object();
    for (const auto& [key, choice] : contents_.choices) plans[key] = to_json(choice);
    for (const auto& [graph, engines] : contents_.failed_engines) {
      for (const EngineChoice& engine : engines) failed[graph].push_back(to_json(engine));
    }
    std::filesystem::create_directories(path_.parent_path());
    const Json book{
        {"format", kFormat},
        {"device", device_},
        {"dnn_version", version_},
        {"copy_bytes_per_us", contents_.copy_rate ? Json(*contents_.copy_rate) : Json()},
        {"plans", std::move(plans)},
        {"without_engine", contents_.without_engine},
        {"failed_engines", std::move(failed)}};
    replace_file(path_, book.dump(1) + '\n');
    changed_ = false;
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace penstock::gpu
