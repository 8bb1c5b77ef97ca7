// SPDX-License-Identifier: Apache-2.0
// Checks that machines are reachable before ranks start on them, and asks for their names.
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/scaling/launch/hosts.h"

namespace penstock::scaling {

/// Is it a name of this machine, on which mpirun starts ranks without an agent?
bool is_local(const std::string& name);

/// Returns the name that each machine reports, asked through `agent`, one after the other. This
/// machine is not asked. If a machine does not answer within half a minute, throws Unavailable with
/// its name and the agent's output.
std::vector<std::string> names_of_machines(std::span<const Host> hosts, const std::string& agent,
                                           const std::stop_token& stop);

/// Do several names belong to one machine?
bool any_twice(std::vector<std::string> names);

}  // namespace penstock::scaling
