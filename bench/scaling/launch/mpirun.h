// SPDX-License-Identifier: Apache-2.0
// Finds and checks Open MPI's mpirun, and builds its command line for ranks with several threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/scaling/launch/hosts.h"
#include "dataflow/clock.h"

namespace penstock::scaling {

struct MpirunPlan {
  std::int32_t ranks = 1;
  /// The hosts of ranks; their slots must add up to `ranks`. None: all ranks on this machine.
  std::vector<Host> hosts{};
  /// Reaches other machines: a command that takes a machine's name and a command.
  std::string agent{};
  /// Time between SIGTERM and SIGKILL when ranks are ended, in whole seconds. mpirun always waits
  /// this long when it ends ranks, even if they exit sooner.
  Nanoseconds grace = std::chrono::seconds(1);
  bool as_root = false;
  /// If several names are one machine, ranks must not treat each other as local ranks of one
  /// launch: Open MPI's shared memory does that and crashes. They use sockets; if all are one
  /// machine, of its loopback, because Open MPI 5.0 finds no way from another interface to itself.
  SharedMachine shared_machine = SharedMachine::none;
};

/// ssh without questions; used if the user gives no agent.
inline constexpr std::string_view kPlainSsh = "ssh -o BatchMode=yes -o ConnectTimeout=10";

/// mpirun's arguments before the program. Ranks are not bound to cores, because they have thread
/// pools. Idle ranks yield, because the pools share cores with them.
std::vector<std::string> mpirun_words(const MpirunPlan& plan);

/// Throws Unavailable if PATH has no mpirun, or the mpirun of another MPI.
void expect_mpirun();

/// Throws ConfigError if a launcher started several processes, or if this one is an MPI job.
void refuse_nested_launch(std::string_view verb);

}  // namespace penstock::scaling
