// SPDX-License-Identifier: Apache-2.0
#include "bench/config/image_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

/// True for an unknown or absent feeder too, which the run itself reports.
bool decodes_samples(const ComponentText& feeder) {
  const FeederEntry* const entry = match_entry(feeder_table(), feeder.name);
  return entry == nullptr || entry->decodes_samples;
}

/// Adds `option=value` to the feeder, which must not have this option yet.
void add_option(RunConfig& config, std::string_view flag, std::string_view option,
                std::string_view value) {
  const ComponentText feeder = parse_component(config.fake_location);
  if (!decodes_samples(feeder)) {
    throw ConfigError(fmt::format(
        "--{} is about images that are decoded, and --fake-location is {}; expected queue; use "
        "--fake-location queue:{}={}, or leave --{} out",
        flag, config.fake_location, option, value, flag));
  }
  const bool typed = std::ranges::any_of(
      feeder.values, [option](const auto& typed_value) { return typed_value.first == option; });
  if (typed) {
    throw ConfigError(
        fmt::format("--{} sets the feeder's {}, and --fake-location {} does so too; "
                    "leave one of them out",
                    flag, option, config.fake_location));
  }
  config.fake_location += fmt::format("{}{}={}", feeder.values.empty() ? ":" : ",", option, value);
}

void set_resize(RunConfig& config, const std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kMethods[] = {
      {"nearest", "tf_nearest"},
      {"bilinear", "tf_bilinear"},
      {"bicubic", "tf_bicubic"},
      {"area", "area"},
      {"round_robin", "tf_round_robin"}};
  for (const auto& [theirs, ours] : kMethods) {
    if (canonical_name(text) == canonical_name(theirs)) {
      return add_option(config, "resize-method", "resize", ours);
    }
  }
  throw ConfigError(fmt::format(
      "--resize-method is {}; expected nearest, bilinear, bicubic, area or round_robin", text));
}

/// ImageNet needs no option: the feeder finds the format of its files by their names.
void set_data_name(RunConfig& config, const std::string& text) {
  const std::string wanted = canonical_name(text);
  if (wanted == "imagenet") return;
  if (wanted != "cifar10") {
    throw ConfigError(fmt::format(
        "--data-name is {}; expected imagenet or cifar10: images, one label each", text));
  }
  if (!decodes_samples(parse_component(config.fake_location))) return;
  add_option(config, "data-name", "source", "cifar10");
}

}  // namespace

std::vector<Flag> image_flags(RunConfig& config) {
  return {
      Flag{.name = "data_name",
           .help = "imagenet or cifar10 (same as queue:source=cifar10); default: by file names",
           .set = [&config](const std::string& text) { set_data_name(config, text); },
           .group = kOtherSystems},
      Flag{.name = "resize_method",
           .help = "nearest, bilinear, bicubic, area or round_robin: same as queue:resize=tf_...",
           .set = [&config](const std::string& text) { set_resize(config, text); },
           .group = kOtherSystems},
      Flag{.name = "distortions",
           .help = "same as queue:color=tf_yiq",
           .fallback = "false",
           .boolean = true,
           .set =
               [&config](const std::string& text) {
                 if (!parse_flag(text, "--distortions")) return;
                 add_option(config, "distortions", "color", "tf_yiq");
               },
           .group = kOtherSystems},
      Flag{.name = "distort_color_in_yiq",
           .help = "false: --distortions is queue:color=tf",
           .fallback = "true",
           .boolean = true,
           .set =
               [&config](const std::string& text) {
                 constexpr std::string_view kYiq = "color=tf_yiq", kSuffix = "_yiq";
                 if (parse_flag(text, "--distort-color-in-yiq")) return;
                 std::string& feeder = config.fake_location;  // --distortions is applied before
                 if (feeder.ends_with(kYiq)) feeder.resize(feeder.size() - kSuffix.size());
               },
           .group = kOtherSystems},
      Flag{.name = "datasets_repeat_cached_sample",
           .help = "same as queue:repeat_cached_sample=true",
           .fallback = "false",
           .boolean = true,
           .set =
               [&config](const std::string& text) {
                 if (!parse_flag(text, "--datasets-repeat-cached-sample")) return;
                 add_option(config, "datasets-repeat-cached-sample", "repeat_cached_sample",
                            "true");
               },
           .group = kOtherSystems}};
}

}  // namespace penstock
