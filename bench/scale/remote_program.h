// SPDX-License-Identifier: Apache-2.0
// This program on other machines: copied there through ssh, and tried.
#pragma once

#include <filesystem>
#include <span>
#include <stop_token>
#include <string>

#include "bench/launch/hosts.h"

namespace penstock {

/// Copies this program, and its library for GPUs where that lies beside it, into `folder` of each
/// machine, made where it is missing, and asks the copy there for its version. Returns the path of
/// the copy. `agent` takes a machine's name and a command, as ssh does. Throws ConfigError for a
/// folder that is no absolute path, Error that names the machine where copying or starting fails.
std::string copy_program(std::span<const Host> hosts, const std::string& folder,
                         const std::string& agent, const std::stop_token& stop);

/// The file that this process runs.
std::filesystem::path this_program();

}  // namespace penstock
