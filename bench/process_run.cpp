// SPDX-License-Identifier: Apache-2.0
#include "bench/process_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "bench/dataset/default_dataset.h"
#include "bench/environment.h"
#include "bench/exit_code.h"
#include "bench/step_table.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

/// For making data, and for compiling.
constexpr Nanoseconds kPreparing = std::chrono::minutes(10);

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

void refuse(std::string_view flag, std::string_view value, std::string_view instead) {
  throw ConfigError(
      fmt::format("--{} is {}, in a run of several processes; {}", flag, value, instead));
}

/// What several processes cannot do together.
void refuse_unfit(const RunConfig& config) {
  if (config.device.starts_with("gpu")) {
    refuse("device", config.device,
           "they exchange through the host's memory so far; use cpu or emulated, or one process "
           "with --variable-update replicated");
  }
  if (config.extend_window) {
    refuse("extend-window", "true", "windows have to be equally long: raise --num-batches");
  }
  if (config.eval || evaluates_while_training(config) || config.stop_at_top_1_accuracy > 0) {
    refuse("eval", "asked for", "evaluate in a run of one process");
  }
  if (!config.train_dir.empty()) {
    refuse("train-dir", config.train_dir, "checkpoints are kept by runs of one process");
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Sums the images and finds the longest window.
void merge_ranks(std::span<const std::string> texts, RunResult& result) {
  double images = 0, published = 0, longest = 0;
  for (const std::string& text : texts) {
    const Json rank = Json::parse(text);
    result.ranks.push_back({.host = rank.at("host"),
                            .img_per_s = rank.at("img_per_s"),
                            .window_s = rank.at("window_s")});
    const RankResult& added = result.ranks.back();
    images += added.img_per_s * added.window_s;
    published += rank.at("sustained_img_per_s").get<double>() * added.window_s;
    longest = std::max(longest, added.window_s);
  }
  result.images_per_step *= static_cast<std::int64_t>(texts.size());
  result.window_s = longest;
  if (!(longest > 0)) return;
  result.img_per_s = images / longest;
  result.sustained_img_per_s = published / longest;
}

}  // namespace

std::unique_ptr<Processes> join_run(const RunConfig& config, const std::optional<Launch>& launch,
                                    Clock& clock) {
  const std::int32_t size = launch ? launch->size : 1;
  if (config.num_processes > 0 && config.num_processes != size) {
    throw ConfigError(fmt::format(
        "--num-processes is {}, and {} started; start with `mpirun -np {}`", config.num_processes,
        size == 1 ? "this one alone was" : fmt::format("{} were", size), config.num_processes));
  }
  if (size == 1) return nullptr;
  const std::string update = parse_component(config.variable_update).name;
  if (find_entry(update_table(), update).ranks == RankKind::threads) {
    throw ConfigError(
        fmt::format("{} started {} processes, and --variable-update {} trains in one; use "
                    "--variable-update horovod, or start without {}",
                    launch->launcher, size, update, launch->launcher));
  }
  refuse_unfit(config);
  return join_processes(*launch, clock);
}

std::string describe(const RunConfig& config) {
  const Environment environment = read_environment();
  std::string text =
      fmt::format("penstock-{} revision-{}\n", environment.version, environment.revision);
  for (const std::string& flag : to_flags(config)) text += flag + "\n";
  return text;
}

std::string differences(std::span<const std::string> descriptions) {
  std::string text;
  const std::vector<std::string> first = lines_of(descriptions[0]);
  for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
    if (descriptions[rank] == descriptions[0]) continue;
    const std::vector<std::string> other = lines_of(descriptions[rank]);
    const auto only_in = [](const std::vector<std::string>& a, const std::vector<std::string>& b) {
      std::string lines;
      for (const std::string& line : a) {
        if (std::find(b.begin(), b.end(), line) == b.end()) lines += " " + line;
      }
      return lines.empty() ? " nothing" : lines;
    };
    text += fmt::format("{}rank {} has{} where rank 0 has{}", text.empty() ? "" : "; ", rank,
                        only_in(other, first), only_in(first, other));
  }
  return text;
}

void check_alike(Processes& processes, const RunConfig& config) {
  const std::vector<std::string> descriptions = processes.all_gather(
      describe(config), Processes::kRendezvous, "comparing how the ranks were started");
  const std::string text = differences(descriptions);
  if (!text.empty()) {
    throw ConfigError("ranks were started unlike each other: " + text +
                      "; start all of them with the same program and flags");
  }
}

void ensure_data_together(Processes& processes, const RunConfig& config, const FeederEntry& feeder,
                          std::stop_token stop) {
  if (processes.launch().local_rank == 0) ensure_data_of(config, feeder, std::move(stop));
  processes.all_gather("", kPreparing, "waiting for the data that a rank makes");
}

void await_all_ready(Processes& processes) {
  processes.all_gather("", kPreparing, "waiting for all ranks to be ready");
}

void gather_ranks(Processes& processes, RunResult& result) {
  const auto note = [&](std::string_view why) {
    result.notes.push_back(
        fmt::format("rates are those of rank {} alone: {}", processes.launch().rank, why));
  };
  if (result.exit_code != 0) return note("the run did not come to its end");
  const Json mine{{"host", host_name()},
                  {"img_per_s", result.img_per_s},
                  {"sustained_img_per_s", result.sustained_img_per_s},
                  {"window_s", result.window_s}};
  std::vector<std::string> texts;
  try {
    texts = processes.all_gather(mine.dump(), Processes::kGoodbye, "gathering the ranks' results");
  } catch (const Error& error) {
    result.status = Status::partial;
    result.exit_code = exit_code_of(std::current_exception());
    result.reason = error.what();
    return note("others could not be gathered");
  }
  merge_ranks(texts, result);
}

std::string format_ranks(const RunResult& result) {
  std::string text;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    text += fmt::format("rank {} on {}: {:.2f} images/sec\n", rank, result.ranks[rank].host,
                        result.ranks[rank].img_per_s);
  }
  return text;
}

}  // namespace penstock
