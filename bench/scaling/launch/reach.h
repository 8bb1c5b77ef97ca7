// SPDX-License-Identifier: Apache-2.0
// Whether machines can be reached before ranks are started on them, and who they are.
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/launch/hosts.h"

namespace penstock {

/// Is it a name of this machine, on which mpirun starts ranks without an agent?
bool is_local(const std::string& name);

/// The name that each machine gives itself, asked through `agent`, one after the other; this
/// machine's own is not asked. Throws Unavailable that names the first that does not answer within
/// half a minute, and what the agent said.
std::vector<std::string> names_of_machines(std::span<const Host> hosts, const std::string& agent,
                                           const std::stop_token& stop);

/// Do several of the names belong to one machine?
bool any_twice(std::vector<std::string> names);

}  // namespace penstock
