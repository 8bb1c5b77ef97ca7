// SPDX-License-Identifier: Apache-2.0
#include "bench/record/run_result.h"

namespace penstock {

std::string_view to_string(Status status) {
  constexpr std::string_view kNames[] = {"ok", "skipped", "failed", "partial", "draining"};
  return kNames[static_cast<std::size_t>(status)];
}

std::string_view to_string(StageRole role) {
  constexpr std::string_view kNames[] = {
      "other",   "reads_storage", "decodes", "crops",    "draws", "receives",
      "unpacks", "copies",        "loads",   "collates", "pins",  "asks",
      "queues",  "produces",      "holds",   "carries",  "sends"};
  return kNames[static_cast<std::size_t>(role)];
}

std::string_view to_string(Culprit culprit) {
  constexpr std::string_view kNames[] = {"none", "rank", "host", "moving", "undecided"};
  return kNames[static_cast<std::size_t>(culprit)];
}

std::optional<double> fact_of(const RunResult& result, const std::string& name) {
  const auto found = result.facts.find(name);
  return found == result.facts.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace penstock
