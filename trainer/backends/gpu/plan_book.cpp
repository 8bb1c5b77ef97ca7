// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/plan_book.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "dataflow/error.h"
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

PlanChoice choice_from(const Json& json) {
  PlanChoice choice{.engine = {.engine = json.at("engine"), .knobs = {}},
                    .workspace_bytes = json.at("workspace_bytes"),
                    .microseconds = json.at("us")};
  for (const Json& knob : json.at("knobs")) {
    choice.engine.knobs.push_back({knob.at(0), knob.at(1)});
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
  std::ifstream file(path_);
  if (!file) return;
  try {
    const Json json = Json::parse(file);
    if (json.at("format") != kFormat || json.at("device") != device_ ||
        json.at("dnn_version") != version_) {
      return;
    }
    for (const auto& [key, value] : json.at("plans").items()) choices_[key] = choice_from(value);
    const Json& rate = json.at("copy_bytes_per_us");
    if (!rate.is_null()) copy_rate_ = rate.get<double>();
  } catch (const Json::exception&) {
    choices_.clear();
  }
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

void PlanBook::save() noexcept {
  if (path_.empty() || !changed_) return;
  try {
    Json plans = Json::object();
    for (const auto& [key, choice] : choices_) plans[key] = to_json(choice);
    std::filesystem::create_directories(path_.parent_path());
    const std::filesystem::path unfinished = path_.string() + fmt::format(".{}", ::getpid());
    std::ofstream file(unfinished);
    file << Json{{"format", kFormat},
                 {"device", device_},
                 {"dnn_version", version_},
                 {"copy_bytes_per_us", copy_rate_ ? Json(*copy_rate_) : Json()},
                 {"plans", std::move(plans)}}
                .dump(1)
         << '\n';
    file.close();
    if (!file) {
      std::filesystem::remove(unfinished);
      return;
    }
    std::filesystem::rename(unfinished, path_);  // other processes see the old file or the new one
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

}  // namespace penstock::gpu
