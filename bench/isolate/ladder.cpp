// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/isolate/isolate_plan.h"
#include "bench/sweep.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

/// Options of `queue` that rungs set themselves.
constexpr std::array<std::string_view, 4> kSetByRungs = {"source", "decode", "crop", "flip"};

/// `queue` with the options of a rung, and those of the user that no rung sets.
std::string queue_text(const ComponentText& users, std::string options) {
  if (users.name == "queue") {
    for (const auto& [key, value] : users.values) {
      if (std::find(kSetByRungs.begin(), kSetByRungs.end(), key) != kSetByRungs.end()) continue;
      options += fmt::format("{}{}={}", options.empty() ? "" : ",", key, value);
    }
  }
  return options.empty() ? "queue" : "queue:" + options;
}

/// Resolves the rung's configuration, or says why there is none.
void complete(LadderRung& rung) {
  try {
    rung.config = resolve(rung.config, find_components(rung.config));
    rung.unavailable = unavailable_reason(rung.config);
  } catch (const Error& error) {
    rung.unavailable = error.what();
  }
}

const Row* row_of(const SweepResult& sweep, std::optional<std::size_t> index) {
  return index ? &sweep.rows[*index] : nullptr;
}

/// Why a rung that ran does not count; empty: it does.
std::string why_not(const LadderRung& rung, const Row& row) {
  std::size_t usable = 0, proved = 0;
  for (const Repetition& repetition : row.repetitions) {
    if (!is_usable(repetition.result)) continue;
    ++usable;
    const auto fact = repetition.result.facts.find(rung.proof);
    proved += fact != repetition.result.facts.end() && fact->second == 1 ? 1 : 0;
  }
  if (usable == 0) return row.reason.empty() ? "no run of it was usable" : row.reason;
  if (rung.proof.empty() || proved == usable) return "";
  const std::string& reason = row.notes.empty() ? row.reason : row.notes.front();
  return fmt::format("its runs do not show {} = 1{}{}", rung.proof, reason.empty() ? "" : ": ",
                     reason);
}

}  // namespace

std::vector<LadderRung> ladder_rungs(const RunConfig& base) {
  const ComponentText users = parse_component(base.fake_location);
  std::vector<LadderRung> rungs;
  const auto add = [&](std::string name, std::string adds, std::string feeder) -> LadderRung& {
    LadderRung& rung = rungs.emplace_back();
    rung.name = std::move(name);
    rung.adds = std::move(adds);
    rung.config = base;
    rung.config.fake_location = std::move(feeder);
    return rung;
  };
  add("gpu", "nothing: batches lie on the device", "gpu").is_ceiling = true;
  add("host", "the copy to the device", "host");
  add("cpu", "random pixels drawn for every batch", "cpu");
  add("raw pixels from memory", "decoded images instead of random pixels",
      queue_text(users, "source=memory,decode=raw"));
  add("decode, centre crop", "JPEG decoding of whole images",
      queue_text(users, "source=memory,decode=full,crop=center,flip=false"));
  add("decode, random crop", "random crop, resize and flip",
      queue_text(users, "source=memory,decode=full"));
  add("region decode", "decoding no more than the crop", queue_text(users, "source=memory"));
  LadderRung& warm = add("warm files", "reading files from the page cache", queue_text(users, ""));
  warm.config.page_cache = "warm";
  warm.proof = "page_cache_warm";
  LadderRung& cold = add("cold files", "reading files from the disk", queue_text(users, ""));
  cold.config.page_cache = "cold";
  cold.proof = "page_cache_cold";
  add("over ZeroMQ", "constant batches of another process", "zmq-consume").branch = true;
  for (LadderRung& rung : rungs) complete(rung);
  return rungs;
}

std::vector<RungFinding> find_rungs(const SweepResult& sweep, std::span<const LadderRung> rungs,
                                    const CostTargets& targets) {
  std::vector<RungFinding> findings;
  const Row* const ceiling = row_of(sweep, rungs.front().row);
  const Row* before = ceiling;
  for (const LadderRung& rung : rungs) {
    RungFinding& finding = findings.emplace_back();
    finding.name = rung.name;
    finding.adds = rung.adds;
    finding.branch = rung.branch;
    finding.row = rung.row.value_or(0);
    finding.unavailable = rung.unavailable;
    const Row* const row = row_of(sweep, rung.row);
    if (finding.unavailable.empty() && row == nullptr) finding.unavailable = "not measured";
    if (finding.unavailable.empty()) finding.unavailable = why_not(rung, *row);
    if (!finding.unavailable.empty() || ceiling == nullptr) continue;
    finding.cost = find_cost(pair_blocks(*ceiling, *row), images_per_step(*row), targets);
    if (!rung.is_ceiling && !rung.branch && before != nullptr) {
      const std::vector<Pair> pairs = step_pairs(pair_blocks(*before, *row));
      if (!pairs.empty()) finding.added_ms = paired_difference(pairs);
    }
    if (!rung.branch) before = row;
    if (const Row* supply = row_of(sweep, rung.supply_row)) {
      finding.supply_img_per_s = supply_of(*supply);
    }
  }
  return findings;
}

std::optional<std::int64_t> longest_window(const LadderRung& rung, const RunResult& pilot) {
  const auto files = pilot.facts.find("page_cache_files");
  if (rung.proof != "page_cache_cold" || files == pilot.facts.end()) return std::nullopt;
  const auto steps =
      static_cast<std::int64_t>(files->second) / std::max<std::int64_t>(1, pilot.images_per_step);
  return std::max<std::int64_t>(2 * static_cast<std::int64_t>(kMinKeptSteps),
                                steps - kWarmupSteps - reserve_steps(rung.config) - 1);
}

}  // namespace penstock
