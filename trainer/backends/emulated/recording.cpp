// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/emulated/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock::emulated {
namespace {

using Json = nlohmann::json;

/// The newest results schema that this reader knows; bench/record/result_json.h has the written
/// one.
constexpr std::uint64_t kNewestSchema = 2;
/// With fewer steps, the replay would depend on chance.
constexpr std::size_t kFewestSteps = 10;
/// The first steps of a watched training, which are left out.
constexpr std::size_t kWatchWarmUp = 10;
/// One day; no step takes longer.
constexpr double kLongestMs = 86'400e3;
/// About ten million steps.
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{256} << 20;

/// Builds a message: what is wrong, what was expected, and what to do.
std::string refusal(const std::string& file, std::string_view what, std::string_view expected,
                    std::string_view recommendation) {
  return fmt::format("emulated:trace '{}' cannot be replayed: {}; expected {}; {}", file, what,
                     expected, recommendation);
}

[[noreturn]] void damaged(const std::string& file, std::string_view what) {
  throw DataError(refusal(file, what,
                          "the results.json of a sweep, or what `penstock run --json` printed",
                          "it is damaged: record it again, or name another file"));
}

/// A whole number of at least 0, without conversion of other numbers.
std::uint64_t whole(const Json& json, const char* name, const std::string& file) {
  if (!json.is_number_unsigned()) damaged(file, fmt::format("its {} is {}", name, json.dump()));
  return json.get<std::uint64_t>();
}

void refuse_newer(const Json& json, const std::string& file) {
  const auto found = json.find("schema");
  if (found == json.end()) return;  // early results of single runs have no schema
  const std::uint64_t schema = whole(*found, "schema", file);
  if (schema <= kNewestSchema) return;
  throw ConfigError(refusal(file, fmt::format("its schema is {}", schema),
                            fmt::format("one up to {}", kNewestSchema),
                            "use the Penstock that wrote it, or a newer one"));
}

/// "gpu", "zmq-consume, num_gpus 2": the feeder and the keys in which rows differ.
std::vector<std::string> labels_of(const Json& rows) {
  std::vector<std::string> labels;
  for (const Json& row : rows) {
    std::string label = row.at("config").at("fake_location").get<std::string>();
    for (const auto& [key, value] : row.at("config").items()) {
      const auto differs = [&, &name = key, &own = value](const Json& other) {
        return other.at("config").value(name, Json()) != own;
      };
      if (key == "fake_location" || !std::any_of(rows.begin(), rows.end(), differs)) continue;
      label +=
          fmt::format(", {} {}", key, value.is_string() ? value.get<std::string>() : value.dump());
    }
    labels.push_back(std::move(label));
  }
  return labels;
}

/// The text before the first ':' or ','.
std::string feeder_of(const std::string& label) {
  return label.substr(0, label.find_first_of(":,"));
}

std::size_t find_row(const std::vector<std::string>& labels, const std::string& row,
                     const std::string& file) {
  if (labels.size() == 1 && row.empty()) return 0;
  std::vector<std::size_t> found;
  std::vector<std::string> all;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    all.push_back(fmt::format("{}: {}", number, labels[i]));
    if (row == number || row == labels[i]) return i;
    if (feeder_of(labels[i]) == (row.empty() ? "gpu" : canonical_name(row))) {
      found.push_back(i);
    }
  }
  if (found.size() == 1) return found.front();
  const std::string what = row.empty()
                               ? fmt::format("{} of its rows have the feeder gpu", found.size())
                               : fmt::format("{} of its rows are '{}'", found.size(), row);
  throw ConfigError(refusal(file, what, "one of its rows: " + join(all, "; "),
                            "name one of them by its number with row="));
}

/// Adds the device's own step times of one run.
void append_steps(const Json& run, const std::string& file, Recording& recording) {
  const auto steps = run.at("step_ms").get<std::vector<double>>();
  const auto idle = run.at("device_idle_ms").get<std::vector<double>>();
  if (steps.size() != idle.size()) {
    damaged(file, fmt::format("{} step_ms have {} device_idle_ms", steps.size(), idle.size()));
  }
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const double own = steps[i] - idle[i];
    // JSON rounds both numbers, so a step of 0 may be slightly negative.
    if (!(own > -1e-6 && own < kLongestMs)) {
      damaged(file, fmt::format("step {} takes {} ms of which the device is idle {} ms", i + 1,
                                steps[i], idle[i]));
    }
    recording.step_ms.push_back(std::max(0.0, own));
  }
}

/// Throws ConfigError if the steps are no base for a replay.
void expect_steps(const Recording& recording, const std::string& file, std::string_view which,
                  std::string_view recommendation) {
  if (recording.step_ms.size() < kFewestSteps || recording.batch == 0) {
    throw ConfigError(
        refusal(file,
                fmt::format("{}has the times of {} steps of {} images, first ones of runs left out",
                            which, recording.step_ms.size(), recording.batch),
                fmt::format("at least {} steps with images", kFewestSteps), recommendation));
  }
  if (!(recording.mean_step_ms() > 0)) {
    throw ConfigError(refusal(file, "its device computed nothing in any step",
                              "steps that take time", "record a model other than null"));
  }
}

Recording recording_of(const Json& config, const std::vector<const Json*>& runs,
                       const std::string& file, const std::string& which) {
  Recording recording;
  for (const Json* run : runs) append_steps(*run, file, recording);
  const std::uint64_t batch = whole(config.at("batch_size"), "batch_size", file);
  if (batch > INT32_MAX) damaged(file, fmt::format("its batch_size is {}", batch));
  recording.batch = static_cast<std::int32_t>(batch);
  recording.warm_up = whole(config.at("num_warmup_batches"), "num_warmup_batches", file);
  recording.origin =
      fmt::format("{}'{}': {} on {}", which, file, config.at("model").get<std::string>(),
                  config.at("device").get<std::string>());
  expect_steps(recording, file, which,
               "record a run that ends well, with more --num-batches, or name another row=");
  return recording;
}

Recording recording_of_sweep(const Json& sweep, const std::string& row, const std::string& file) {
  const Json& rows = sweep.at("runs");
  if (!rows.is_array() || rows.empty()) damaged(file, "it has no rows");
  const std::vector<std::string> labels = labels_of(rows);
  const std::size_t index = find_row(labels, row, file);
  std::vector<const Json*> runs;
  for (const Json& repetition : rows[index].at("repetitions")) runs.push_back(&repetition);
  return recording_of(rows[index].at("config"), runs, file,
                      fmt::format("row '{}' of ", labels[index]));
}

/// The steps of a rank's main loop, from a record of `penstock watch`, without their waits.
Recording recording_of_watch(const Json& ranks, const std::string& row, const std::string& file) {
  std::vector<std::string> numbers;
  for (const Json& rank : ranks) {
    numbers.push_back(std::to_string(whole(rank.at("rank"), "rank", file)));
  }
  const auto found = row.empty() ? numbers.begin() : std::ranges::find(numbers, row);
  if (found == numbers.end()) {
    throw ConfigError(refusal(file, fmt::format("it has no steps of rank '{}'", row),
                              "one of its ranks: " + join(numbers, ", "),
                              "name a rank with row=, or watch the training again"));
  }
  const Json& loop = ranks.at(static_cast<std::size_t>(found - numbers.begin())).at("loops").at(0);
  const auto steps = loop.at("step_us").get<std::vector<double>>();
  auto waits = loop.at("wait_us").get<std::vector<double>>();
  const std::uint64_t batch = whole(loop.at("batch_size"), "batch_size", file);
  if (waits.size() != steps.size() || batch > INT32_MAX) {
    damaged(file, fmt::format("{} step_us have {} wait_us and a batch_size of {}", steps.size(),
                              waits.size(), batch));
  }
  if (const auto gpu_waits = loop.find("gpu_wait_us"); gpu_waits != loop.end()) {
    // A GPU that still has work while the loop waits goes on with its step.
    for (std::size_t i = 0; i < std::min(waits.size(), gpu_waits->size()); ++i) {
      if (const Json& wait = gpu_waits->at(i); wait.is_number()) waits[i] = wait.get<double>();
    }
  }
  Recording recording;
  recording.batch = static_cast<std::int32_t>(batch);
  recording.origin =
      fmt::format("'{}': loop {} of rank {}", file, loop.at("loop").get<std::string>(), *found);
  recording.warm_up = std::min<std::size_t>(kWatchWarmUp, steps.size() / 2);
  for (std::size_t i = recording.warm_up; i < steps.size(); ++i) {
    const double own = (steps[i] - waits[i]) / 1e3;
    if (!(own >= 0 && own < kLongestMs)) {
      damaged(file,
              fmt::format("step {} takes {} us, and waits for {} us", i + 1, steps[i], waits[i]));
    }
    recording.step_ms.push_back(own);
  }
  expect_steps(recording, file, "", "watch a longer training whose batches are arrays of images");
  return recording;
}

}  // namespace

double Recording::mean_step_ms() const {
  return step_ms.empty() ? 0
                         : std::accumulate(step_ms.begin(), step_ms.end(), 0.0) /
                               static_cast<double>(step_ms.size());
}

Recording parse_recording(std::string_view text, const std::string& row, const std::string& file) {
  try {
    const Json json = Json::parse(text);
    if (json.is_object()) refuse_newer(json, file);
    if (json.is_object() && json.contains("sweep") && json.contains("runs")) {
      return recording_of_sweep(json, row, file);
    }
    if (json.is_object() && json.contains("config") && json.contains("step_ms")) {
      if (row.empty()) return recording_of(json.at("config"), {&json}, file, "");
      throw ConfigError(refusal(file, fmt::format("it is one run, and row= is '{}'", row),
                                "no row for a single run", "leave row= out"));
    }
    if (json.is_object() && json.contains("watch") && json.contains("ranks")) {
      return recording_of_watch(json.at("ranks"), row, file);
    }
  } catch (const Json::exception& error) {
    damaged(file, error.what());
  }
  throw ConfigError(refusal(file, "it is JSON, but not a result of Penstock",
                            "the results.json of a sweep, the record of `penstock watch`, or what "
                            "`penstock run --json` printed",
                            "name such a file"));
}

Recording read_recording(const std::filesystem::path& file, const std::string& row) {
  std::string text;
  try {
    text = InputFile(file).text(kMaxFileBytes);
  } catch (const DataError& error) {
    throw ConfigError(refusal(file.string(), error.what(),
                              fmt::format("a file of at most {} bytes", kMaxFileBytes),
                              "check the path behind trace="));
  }
  return parse_recording(text, row, file.string());
}

}  // namespace penstock::emulated
