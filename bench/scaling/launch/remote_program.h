// SPDX-License-Identifier: Apache-2.0
// Copies this program to other machines through ssh, and checks that it starts there.
#pragma once

#include <filesystem>
#include <span>
#include <stop_token>
#include <string>

#include "bench/scaling/launch/hosts.h"

namespace penstock::scaling {

/// Copies `program`, this one, and its GPU library if it lies beside it, into `folder` of each
/// machine. Creates the folder if necessary. Then asks the copy for its version. Returns the path
/// of the copy. `agent` takes a machine's name and a command, as ssh does. Throws ConfigError if
/// `folder` is not an absolute path, and Error with the machine's name if copying or starting
/// fails.
std::string copy_program(const std::filesystem::path& program, std::span<const Host> hosts,
                         const std::string& folder, const std::string& agent,
                         const std::stop_token& stop);

}  // namespace penstock::scaling
