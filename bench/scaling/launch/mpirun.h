// SPDX-License-Identifier: Apache-2.0
// Open MPI's mpirun as this program starts it: found, checked, and with the flags that ranks with
// threads of their own need.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/launch/hosts.h"
#include "dataflow/clock.h"

namespace penstock {

struct MpirunPlan {
  std::int32_t ranks = 1;
  /// Where they go, their slots adding up to `ranks`; none: all on this machine.
  std::vector<Host> hosts{};
  /// Reaches other machines: a command that takes a machine's name and a command.
  std::string agent{};
  /// What ranks have from SIGTERM to SIGKILL when the run is ended, whole seconds. mpirun waits
  /// that long whenever it ends ranks, whether they need it or not.
  Nanoseconds grace = std::chrono::seconds(1);
  bool as_root = false;
  /// Several of the names are one machine: ranks must not take each other for those of one launch,
  /// as Open MPI's shared memory does, which then crashes.
  bool shared_machine = false;
};

/// ssh that asks nobody: for those who give no agent of their own.
inline constexpr std::string_view kPlainSsh = "ssh -o BatchMode=yes -o ConnectTimeout=10";

/// mpirun's own words, up to the program that it starts. Nothing is bound to cores, since ranks
/// have thread pools; idle ranks yield, since the pools take turns with them.
std::vector<std::string> mpirun_words(const MpirunPlan& plan);

/// Throws Unavailable where PATH has no mpirun, or another MPI's.
void expect_mpirun();

/// Throws ConfigError where this process has been started by a launcher itself.
void refuse_nested_launch(std::string_view verb);

/// Words between blanks.
std::vector<std::string> split_words(std::string_view text);

}  // namespace penstock
