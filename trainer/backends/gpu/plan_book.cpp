// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/plan_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/io/input_file.h"
#include "dataflow/io/output_file.h"
#include "trainer/backends/gpu/time_plans.h"

namespace penstock::gpu {
namespace {

using Json = nlohmann::json;

/// Of the file's form: changes when a choice has other fields, or a graph's text other meaning.
constexpr int kFormat = 2;
/// Candidates of one graph: more than cuDNN 9 has for any.
constexpr std::size_t kCandidates = 100;

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
  return "gpu-plans-" + device + ".json";
}

Json to_json(const PlanChoice& choice) {
  Json knobs = Json::array();
  for (const EngineChoice::Knob& knob : choice.engine.knobs) {
    knobs.push_back({knob.type, knob.value});
  }
  return {{"engine", choice.engine.engine},
          {"knobs", std::move(knobs)},
          {"workspace_bytes", choice.workspace_bytes},
          {"us", choice.microseconds}};
}

/// Whole numbers alone: others would be cut to fit. Throws Json::exception, or std::range_error.
std::int64_t whole(const Json& json) {
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) {
    throw std::range_error("too large");
  }
  if (!json.is_number_integer()) throw std::range_error("not a whole number");
  return json.get<std::int64_t>();
}

PlanChoice choice_from(const Json& json) {
  PlanChoice choice{.engine = {.engine = whole(json.at("engine")), .knobs = {}},
                    .workspace_bytes = static_cast<std::size_t>(whole(json.at("workspace_bytes"))),
                    .microseconds = json.at("us").get<double>()};
  const Json& knobs = json.at("knobs");
  if (!knobs.is_array()) throw std::range_error("no list of knobs");
  for (const Json& knob : knobs) {
    choice.engine.knobs.push_back({whole(knob.at(0)), whole(knob.at(1))});
  }
  return choice;
}

}  // namespace

PlanBook::PlanBook(const DeviceFacts& facts, std::filesystem::path directory)
    : device_(fmt::format("{} sm_{} {} SMs", facts.name, facts.capability, facts.multiprocessors)),
      version_(facts.dnn_version) {
  if (directory.empty()) return;
  path_ = std::move(directory) / file_name(facts.name);
  load();
}

void PlanBook::load() {
  const InputFile file(path_);
  if (!file) return;
  PlanBookContents contents = parse_plan_book(file.text(), device_, version_);
  choices_ = std::move(contents.choices);
  copy_rate_ = contents.copy_rate;
}

PlanBookContents parse_plan_book(std::string_view text, std::string_view device,
                                 std::string_view version) {
  PlanBookContents contents;
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat || json.at("device") != device ||
        json.at("dnn_version") != version || !json.at("plans").is_object()) {
      return {};
    }
    for (const auto& [key, value] : json.at("plans").items()) {
      contents.choices[key] = choice_from(value);
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
  const auto found = choices_.find(key_of(graph, rules));
  if (found == choices_.end() || found->second.workspace_bytes > rules.workspace_limit) return {};
  return found->second;
}

void PlanBook::add(const DnnGraph& graph, const PlanRules& rules, const PlanChoice& choice) {
  choices_[key_of(graph, rules)] = choice;
  changed_ = true;
}

void PlanBook::set_copy_rate(double bytes_per_microsecond) {
  copy_rate_ = bytes_per_microsecond;
  changed_ = true;
}

void PlanBook::remove(const DnnGraph& graph, const PlanRules& rules) {
  changed_ = choices_.erase(key_of(graph, rules)) > 0 || changed_;
}

void PlanBook::save() noexcept {
  if (path_.empty() || !changed_) return;
  try {
    Json plans = Json::object();
    for (const auto& [key, choice] : choices_) plans[key] = to_json(choice);
    std::filesystem::create_directories(path_.parent_path());
    const Json book{{"format", kFormat},
                    {"device", device_},
                    {"dnn_version", version_},
                    {"copy_bytes_per_us", copy_rate_ ? Json(*copy_rate_) : Json()},
                    {"plans", std::move(plans)}};
    replace_file(path_, book.dump(1) + '\n');
    changed_ = false;
  } catch (const std::exception&) {
    return;
  }
}

namespace {

/// Those that keep the rules, and how many there were.
std::pair<std::vector<Candidate>, std::size_t> candidates_for(const DnnGraph& graph,
                                                              const PlanRules& rules,
                                                              Driver& driver) {
  std::vector<Candidate> candidates =
      driver.planner().candidates(graph, rules.allow_tf32, kCandidates);
  const std::size_t found = candidates.size();
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return candidate.workspace_bytes > rules.workspace_limit ||
           (rules.deterministic && !candidate.deterministic) ||
           (!rules.reduced_precision && candidate.reduced_precision);
  });
  return {std::move(candidates), found};
}

}  // namespace

std::optional<PlanChoice> find_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                    PlanBook& book) {
  if (const auto known = book.find(graph, rules)) return known;
  const std::vector<Candidate> candidates = candidates_for(graph, rules, driver).first;
  if (candidates.empty()) return std::nullopt;
  PlanChoice choice{candidates.front().choice, candidates.front().workspace_bytes, 0};
  if (rules.autotune) choice = fastest_of(graph, candidates, driver);
  book.add(graph, rules, choice);
  return choice;
}

PlanChoice choose_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                       PlanBook& book) {
  if (const auto choice = find_plan(graph, rules, driver, book)) return *choice;
  const bool exceeds = candidates_for(graph, rules, driver).second > 0;
  throw Unavailable(
      fmt::format("cuDNN {} has no engine for '{}' on {}{}", driver.facts().dnn_version,
                  to_text(graph), driver.facts().name,
                  exceeds ? fmt::format(" within {} MiB of workspace; raise gpu:workspace_mib",
                                        rules.workspace_limit >> 20)
                          : std::string("; try another --precision")));
}

std::unique_ptr<DnnPlan> make_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                   PlanBook& book) {
  if (const auto known = book.find(graph, rules)) {
    try {
      return driver.build(graph, known->engine);
    } catch (const DeviceError&) {
      book.remove(graph, rules);
    }
  }
  return driver.build(graph, choose_plan(graph, rules, driver, book).engine);
}

}  // namespace penstock::gpu
