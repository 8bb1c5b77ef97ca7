// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/find_plan.h"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/backends/gpu/time_plans.h"

namespace penstock::gpu {
namespace {

/// Limit of candidates for one graph: more than cuDNN 9 has for any graph.
constexpr std::size_t kCandidates = 100;

/// All usable candidates, to be timed. Without timing: one candidate, or all if that one has failed
/// before.
std::vector<Candidate> candidates_for(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                      const PlanBook& book) {
  for (std::size_t most = rules.autotune ? kCandidates : 1;; most = kCandidates) {
    std::vector<Candidate> candidates = driver.planner().candidates(graph, rules, most);
    const bool all = candidates.size() < most || most == kCandidates;
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return book.has_failed(graph, candidate.choice);
    });
    if (all || !candidates.empty()) return candidates;
  }
}

Unavailable no_engine_for(const DnnGraph& graph, const PlanRules& rules, Driver& driver) {
  const auto exists = [&](const PlanRules& within) {
    return !driver.planner().candidates(graph, within, 1).empty();
  };
  PlanRules roomy = rules;
  roomy.workspace_limit = std::numeric_limits<std::size_t>::max();
  std::string rest = "; try another --precision";
  if (exists(rules)) {
    rest = " that can run: each of them failed; try another --precision or a newer cuDNN";
  } else if (exists(roomy)) {
    rest = fmt::format(" within {} MiB of workspace; raise gpu:workspace_mib",
                       rules.workspace_limit >> 20);
  }
  return Unavailable("cuDNN {} has no engine for '{}' on {}{}", driver.facts().dnn_version,
                     to_text(graph), driver.facts().name, rest);
}

}  // namespace

std::optional<PlanChoice> find_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                    PlanBook& book) {
  if (const auto known = book.find(graph, rules)) return known;
  if (book.lacks_engine(graph, rules)) return std::nullopt;
  std::vector<Candidate> candidates = candidates_for(graph, rules, driver, book);
  if (candidates.empty()) {
    expect_alive(driver, DeviceError("no engine for '{}'", to_text(graph)));
    book.add_lack(graph, rules);
    return std::nullopt;
  }
  const std::size_t excluded_bytes = candidates.front().excluded_bytes;
  PlanChoice choice{candidates.front().choice, candidates.front().workspace_bytes};
  if (rules.autotune) {
    choice = fastest_of(graph, std::move(candidates), driver, book, rules.record);
  }
  choice.excluded_bytes = excluded_bytes;
  book.add(graph, rules, choice);
  return choice;
}

std::unique_ptr<DnnPlan> make_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                   PlanBook& book) {
  // The step needs this graph, so engines that failed in an earlier run are tried again.
  if (book.lacks_engine(graph, rules)) book.forget_lack(graph, rules);
  std::string failure;
  while (const auto choice = find_plan(graph, rules, driver, book)) {
    try {
      return driver.build(graph, choice->engine);
    } catch (const DeviceError& error) {
      expect_alive(driver, error);
      failure = error.what();
      book.add_failure(graph, choice->engine);
    }
  }
  if (!failure.empty()) throw DeviceError("no engine could be built: " + failure);
  throw no_engine_for(graph, rules, driver);
}

}  // namespace penstock::gpu
