// SPDX-License-Identifier: Apache-2.0
// The flags of a run. Other verbs accept them as well.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"

namespace penstock {

/// One flag for each key of RunConfig, which writes to `config`; then the flags of other systems;
/// then --like, which apply_like_of applies first.
std::vector<Flag> run_flags(RunConfig& config);
/// Those of run_flags with one of these `names`.
std::vector<Flag> run_flags(RunConfig& config, std::span<const std::string_view> names);

/// Flags for a Python loader: --loader, --loader-args, --python, --pixels and --labels. They write
/// the feeder `python` and its options to `config`.
std::vector<Flag> loader_flags(RunConfig& config);

/// Applies --like before the flags that override its defaults. If --data-dir is typed without
/// --fake-location, chooses the feeder that reads it; with --job-name without --variable-update,
/// the update of parameter servers. Throws ConfigError for flags that exclude each other.
void apply_like_of(RunConfig& config, std::span<const std::string> arguments);

}  // namespace penstock
