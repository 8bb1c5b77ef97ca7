// SPDX-License-Identifier: Apache-2.0
// Decides whether this process is one of several: by what a launcher has put into the environment,
// and by flags for processes that are started by hand. A process that a launcher started as one of
// several never measures alone without a word.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config/flags.h"
#include "trainer/cluster/launch.h"

namespace penstock {

struct LaunchArguments {
  std::string rendezvous;       ///< HOST:PORT; empty: what the launcher says
  std::int32_t rank = -1;       ///< -1: what the launcher says
  std::int32_t world_size = 0;  ///< 0: what the launcher says
  bool alone = false;
};

std::vector<Flag> launch_flags(LaunchArguments& arguments);
/// The last of these flags, for verbs that measure in one process.
Flag alone_flag(bool& alone);

/// The arguments without --rank, which differs between processes that are started alike.
std::vector<std::string> without_rank(std::span<const std::string> arguments);

/// This process among those of its run. Nothing: it is alone. Throws ConfigError, which names the
/// variable, if there are several processes and nothing says how many or where they meet.
std::optional<cluster::Launch> find_launch(const LaunchArguments& arguments,
                                           const cluster::FindVariable& find);

/// For a verb that measures in one process: throws ConfigError, which names the variable, if a
/// launcher started several processes. `alone`: one is meant; child processes then see no launcher.
void expect_one_process(std::string_view verb, bool alone);

}  // namespace penstock
