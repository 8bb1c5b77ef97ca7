// SPDX-License-Identifier: Apache-2.0
#include "bench/config/training_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

constexpr std::string_view kAhead = "ahead=", kLaunch = "launch=";
constexpr std::int32_t kMostAhead = 64;
constexpr double kMostLaunch_ms = 60'000;

std::int32_t steps_ahead(std::string_view word) {
  if (word == "sync") return 0;
  if (word == "async") return 1;
  const std::int64_t steps =
      word.starts_with(kAhead) ? parse_integer(word.substr(kAhead.size()), "--loop ahead") : -1;
  if (steps >= 0 && steps <= kMostAhead) return static_cast<std::int32_t>(steps);
  throw ConfigError(
      "--loop is '{}'; expected sync, async or ahead=N with 0 to {} steps, launch=MS, or both as "
      "in async:launch=2.5",
      word, kMostAhead);
}

Options options_of(const RunConfig& config, const FeederEntry& feeder) {
  const ComponentText text = parse_component(config.fake_location);
  return {text.name, feeder.options, text};
}

const FeederEntry* feeder_of(const RunConfig& config) {
  return entry_of(feeder_table(), config.fake_location);
}

}  // namespace

TrainingLoop parse_loop(std::string_view text) {
  TrainingLoop loop;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(':'));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!word.starts_with(kLaunch)) {
      loop.ahead = steps_ahead(word);
      continue;
    }
    loop.launch_ms = parse_real(word.substr(kLaunch.size()), "--loop launch");
    if (!(loop.launch_ms >= 0) || loop.launch_ms > kMostLaunch_ms) {
      throw ConfigError("--loop launch is '{}'; expected milliseconds, at most {}",
                        word.substr(kLaunch.size()), kMostLaunch_ms);
    }
  }
  return loop;
}

std::string to_string(const TrainingLoop& loop) {
  std::string text;
  if (loop.ahead == 0) text = "sync";
  if (loop.ahead == 1) text = "async";
  if (loop.ahead > 1) text = fmt::format("{}{}", kAhead, *loop.ahead);
  if (loop.launch_ms > 0) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ":", kLaunch, loop.launch_ms);
  }
  return text;
}

bool follows_loop(const RunConfig& config, const FeederEntry& feeder) {
  return feeder.is_loader != nullptr && feeder.is_loader(options_of(config, feeder));
}

bool has_loader(const RunConfig& config) {
  const FeederEntry* const feeder = feeder_of(config);
  return feeder != nullptr && follows_loop(config, *feeder);
}

std::string sample_unit(const RunConfig& config) {
  const FeederEntry* const feeder = feeder_of(config);
  if (feeder == nullptr || feeder->unit == nullptr) return "img";
  return std::string(feeder->unit(options_of(config, *feeder)));
}

std::string rate_unit(const RunConfig& config) { return sample_unit(config) + "/s"; }

bool trains_images(const RunConfig& config) { return sample_unit(config) == "img"; }

std::string samples_name(const RunConfig& config) {
  return trains_images(config) ? "images" : sample_unit(config);
}

std::string describe_loop(const RunConfig& config) {
  const std::optional<std::int32_t> ahead = parse_loop(config.loop).ahead;
  if (!ahead) return {};
  if (*ahead == 0) return fmt::format("that waits for each step (--loop {})", config.loop);
  return fmt::format("that launches {} step{} ahead (--loop {})", *ahead, *ahead == 1 ? "" : "s",
                     config.loop);
}

std::string default_python() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const char* const active = std::getenv("VIRTUAL_ENV");
  std::vector<std::filesystem::path> environments{program.parent_path().parent_path()};
  if (active != nullptr && *active != 0) environments.emplace_back(active);
  for (const std::filesystem::path& environment : environments) {
    const std::filesystem::path python = environment / "bin" / "python3";
    const bool is_environment = std::filesystem::exists(environment / "pyvenv.cfg", ignored);
    if (is_environment && std::filesystem::exists(python, ignored)) return python.string();
  }
  return "python3";
}

RunConfig with_loop(RunConfig config, const BackendEntry& backend) {
  TrainingLoop loop = parse_loop(config.loop);
  if (!loop.ahead) loop.ahead = backend.computes_on_host ? 0 : 1;
  config.loop = to_string(loop);
  config.prefetch = config.loader_per == "device" ? 1 : config.num_gpus;
  config.device_slots = std::max(1, *loop.ahead);
  config.batch_group_size = 0;
  return config;
}

}  // namespace penstock
