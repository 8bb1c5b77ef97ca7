// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "bench/config/flags.h"
#include "bench/dataset/open_dataset.h"
#include "bench/isolate/isolate_plan.h"
#include "bench/run/runner.h"
#include "bench/sweep/sweep.h"
#include "dataflow/datasets/detect_source.h"
#include "dataflow/error.h"
#include "feeders/feeder.h"

namespace penstock::isolate {
namespace {

/// Options of `queue` that the rungs set.
constexpr std::array<std::string_view, 8> kSetByRungs = {
    "source", "decode", "shrink", "engine", "crop", "readahead", "flip", "normalise"};

/// The user's feeder if it decodes samples. Otherwise without options: rungs cannot use them.
ComponentText decoding_feeder(const RunConfig& config) {
  ComponentText feeder = parse_component(config.fake_location);
  const FeederEntry* const entry = match_entry(feeder_table(), feeder.name);
  if (entry == nullptr || !entry->decodes_samples) feeder.values.clear();
  return feeder;
}

/// `queue` with the options of a rung, and the user's other options. Data sets other than folders
/// keep their source. If the rung has no random augmentation, colours are not changed.
std::string queue_text(const ComponentText& users, const LadderData& data, std::string options,
                       bool chances = true) {
  for (const auto& [key, value] : users.values) {
    const bool is_set = std::find(kSetByRungs.begin(), kSetByRungs.end(), key) != kSetByRungs.end();
    if (is_set && (key != "source" || data.is_folder)) continue;
    if (!chances && key == "color") continue;
    options += fmt::format("{}{}={}", options.empty() ? "" : ",", key, value);
    if (!chances && key == "chain") options += ",color=none";
  }
  return options.empty() ? "queue" : "queue:" + options;
}

const Row* row_of(const SweepResult& sweep, std::optional<std::size_t> index) {
  return index ? &sweep.rows[*index] : nullptr;
}

/// Why a completed rung does not count; empty: it counts.
std::string why_not(const LadderRung& rung, const Row& row) {
  const std::vector<const RunResult*> usable = analysis::usable_runs(row);
  const auto proves = [&](const RunResult* run) { return fact_of(*run, rung.proof) == 1; };
  if (row.repetitions.empty() && row.unavailable.empty()) return kBudgetEnded;
  if (usable.empty()) return row.reason.empty() ? "no run of it was usable" : row.reason;
  if (rung.proof.empty() || std::ranges::all_of(usable, proves)) return "";
  const auto note = std::ranges::find_if(row.notes, [](const std::string& text) {
    return text.find("page cache, this is no") != std::string::npos;
  });
  const std::string& reason = note == row.notes.end() ? row.reason : *note;
  return fmt::format("its runs do not show {} = 1{}{}", rung.proof, reason.empty() ? "" : ": ",
                     reason);
}

/// What a rung adds to a step, summarised over blocks.
statistics::Estimate added_of(const std::vector<statistics::Pair>& pairs) {
  std::vector<double> added;
  for (const statistics::Pair& pair : pairs) added.push_back(pair.b - pair.a);
  return statistics::summarise_rounds(added);
}

/// Adds one rung after the other.
class Ladder {
 public:
  Ladder(const RunConfig& base, const LadderData& data)
      : base_(base), data_(data), users_(decoding_feeder(base)) {
    const std::string normalise = value_of(users_, "normalise").value_or("device");
    if (normalise != "device") normalise_ = "normalise=" + normalise;
  }

  LadderRung& add(std::string name, std::string adds, std::string feeder) {
    LadderRung& rung = add_rung(rungs_, base_, std::move(name), std::move(adds), std::move(feeder));
    rung.examples = data_.examples;
    return rung;
  }
  /// Adds rungs that read nothing.
  void add_synthetic() {
    add("gpu", "nothing: batches are on the device", "gpu").is_ceiling = true;
    add("host", "the copy to the device", "host");
    add("cpu", "random pixels drawn for every batch", "cpu");
  }
  /// Decodes from memory, or from the page cache if memory cannot hold the set.
  void add_decoding() {
    if (data_.is_folder) {
      add("raw pixels from memory", "decoded images instead of random pixels",
          queue_text(users_, data_, "source=memory,decode=raw", false));
    }
    add_near("decode, centre crop", "JPEG decoding of whole images",
             "decode=full,engine=libjpeg,crop=center,flip=false", false);
    add_near("decode, random crop", "random crop, resize and flip", "decode=full,engine=libjpeg");
    add_near("region decode", "decoding only the crop", "engine=libjpeg,shrink=false");
    add_near("shrunk decode", "large crops decoded at a half or less", "engine=libjpeg");
    add_near("own JPEG engine", "the built-in engine, for images that it supports", "");
  }
  void add_pixels() {
    add_near("whole pixels", "images of the set instead of random pixels", "crop=full,flip=false",
             false);
    add_near("random crop", "random crop and flip", "");
  }
  void add_normalising() {
    if (normalise_.empty()) return;
    add_near("normalised on the CPU", "its arithmetic, and a larger copy", normalise_);
  }
  void add_files() {
    if (data_.is_folder) {
      set_page_cache(add("warm files", "reading files from the page cache", text(normalise_)),
                     "warm");
    }
    set_page_cache(add("cold files", "reading files from the disk", text(normalise_)), "cold");
    set_page_cache(add("cold files, read ahead", "samples read before they are asked for",
                       text("readahead=64" + (normalise_.empty() ? "" : "," + normalise_))),
                   "cold");
  }

  std::vector<LadderRung> rungs() {
    for (LadderRung& rung : rungs_) complete_rung(rung);
    return std::move(rungs_);
  }

 private:
  std::string text(std::string options) const {
    return queue_text(users_, data_, std::move(options));
  }
  void add_near(std::string name, std::string adds, std::string options, bool chances = true) {
    if (data_.is_folder) options = "source=memory" + (options.empty() ? "" : "," + options);
    LadderRung& rung = add(std::move(name), std::move(adds),
                           queue_text(users_, data_, std::move(options), chances));
    if (!data_.is_folder) set_page_cache(rung, "warm");
  }
  static void set_page_cache(LadderRung& rung, const std::string& state) {
    rung.config.page_cache = state;
    rung.proof = "page_cache_" + state;
  }

  const RunConfig& base_;
  const LadderData& data_;
  const ComponentText users_;
  std::string normalise_;  // as an option; empty: the device does it
  std::vector<LadderRung> rungs_;
};

/// True if the source `memory` can hold the set.
bool is_folder(const ComponentText& source) {
  const SourceEntry* const entry = match_entry(source_table(), source.name);
  return entry != nullptr && (entry->in_memory || (entry->class_folders && source.values.empty()));
}

}  // namespace

std::optional<std::string> value_of(const ComponentText& feeder, std::string_view option) {
  for (const auto& [name, value] : feeder.values) {
    if (name == option) return value;
  }
  return std::nullopt;
}

bool is_on(const ComponentText& feeder, std::string_view option) {
  const std::optional<std::string> value = value_of(feeder, option);
  return value && *value != "false" && *value != "0";
}

std::string with_value(ComponentText feeder, std::string_view option, const std::string& value) {
  std::erase_if(feeder.values, [&](const auto& each) { return each.first == option; });
  if (!value.empty()) feeder.values.emplace_back(option, value);
  return component_text(feeder);
}

LadderRung& add_rung(std::vector<LadderRung>& rungs, const RunConfig& base, std::string name,
                     std::string adds, std::string feeder) {
  LadderRung& rung = rungs.emplace_back();
  rung.name = std::move(name);
  rung.adds = std::move(adds);
  rung.config = base;
  rung.config.fake_location = std::move(feeder);
  return rung;
}

LadderData ladder_data(const RunConfig& config, const std::stop_token& stop) {
  const std::string text = value_of(decoding_feeder(config), "source").value_or("auto");
  const ComponentText source = datasets::source_text(text, config.data_dir);
  if (is_folder(source)) return {};
  const std::unique_ptr<Source> opened = dataset::open_dataset({.directory = config.data_dir,
                                                                .source = text,
                                                                .threads = config.feeder_threads,
                                                                .stop = stop});
  const SourceFacts facts = opened->facts();
  return {.is_folder = false, .kind = facts.kind, .examples = facts.size};
}

void complete_rung(LadderRung& rung) {
  if (!rung.unavailable.empty()) return;
  try {
    rung.config = resolve(rung.config, find_components(rung.config));
    rung.unavailable = unavailable_reason(rung.config);
  } catch (const Error& error) {
    rung.unavailable = error.what();
  }
}

std::vector<LadderRung> ladder_rungs(const RunConfig& base, const LadderData& data) {
  Ladder ladder(base, data);
  ladder.add_synthetic();
  if (data.kind == SampleKind::pixels) {
    ladder.add_pixels();
  } else {
    ladder.add_decoding();
  }
  ladder.add_normalising();
  ladder.add_files();
  ladder.add("over ZeroMQ", "constant batches of another process", "zmq-consume").branch = true;
  return ladder.rungs();
}

std::vector<LadderRung> loader_rungs(const RunConfig& base) {
  std::vector<LadderRung> rungs;
  const auto add = [&](std::string name, std::string adds, std::string feeder) -> LadderRung& {
    return add_rung(rungs, base, std::move(name), std::move(adds), std::move(feeder));
  };
  const auto part = [&](const std::string& name) {
    return with_value(parse_component(base.fake_location), "part", name);
  };
  add("gpu", "nothing: batches are on the device", "gpu").is_ceiling = true;
  add("host", "the copy to the device", "host");
  add("hand over", "the way from Python: the loader's first batch again and again",
      part("handover"));
  add("collate", "collating samples that lie ready", part("collate"));
  add("the loader", "loading samples", part(""));
  add("samples alone", "the loader without collating", part("samples")).branch = true;
  if (!base.data_dir.empty()) {
    add("queue", "Penstock's own decoder on the files of --data-dir", "queue").branch = true;
  }
  for (LadderRung& rung : rungs) complete_rung(rung);
  return rungs;
}

std::vector<RungFinding> find_rungs(const SweepResult& sweep, std::span<const LadderRung> rungs,
                                    const statistics::CostTargets& targets) {
  std::vector<RungFinding> findings;
  const Row* const ceiling = row_of(sweep, rungs.front().row);
  const Row* before = ceiling;
  for (const LadderRung& rung : rungs) {
    RungFinding& finding = findings.emplace_back();
    static_cast<RungFacts&>(finding) = rung;
    finding.row = rung.row.value_or(0);
    const Row* const row = row_of(sweep, rung.row);
    if (finding.unavailable.empty() && row == nullptr) finding.unavailable = kBudgetEnded;
    if (finding.unavailable.empty()) finding.unavailable = why_not(rung, *row);
    if (!finding.unavailable.empty() || ceiling == nullptr) continue;
    finding.cost =
        analysis::find_cost(analysis::pair_blocks(*ceiling, *row), images_per_step(*row), targets);
    if (!rung.is_ceiling && !rung.branch && before != nullptr) {
      const std::vector<statistics::Pair> pairs =
          analysis::step_pairs(analysis::pair_blocks(*before, *row));
      if (!pairs.empty()) finding.added_ms = added_of(pairs);
    }
    if (!rung.branch) before = row;
    if (const Row* supply = row_of(sweep, rung.supply_row)) {
      finding.supply_img_per_s = analysis::supply_of(*supply);
    }
  }
  return findings;
}

std::optional<std::int64_t> longest_window(const LadderRung& rung, const RunResult& pilot) {
  const auto files = fact_of(pilot, "page_cache_files");
  if (rung.proof != "page_cache_cold" || !files) return std::nullopt;
  const auto images = rung.examples > 0 ? static_cast<std::int64_t>(rung.examples)
                                        : static_cast<std::int64_t>(*files);
  const std::int64_t steps = images / std::max<std::int64_t>(1, pilot.images_per_step);
  return std::max<std::int64_t>(2 * static_cast<std::int64_t>(analysis::kMinKeptSteps),
                                steps - kWarmupSteps - reserve_steps(rung.config) - 1);
}

}  // namespace penstock::isolate
