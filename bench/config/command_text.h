// SPDX-License-Identifier: Apache-2.0
// Formats a command as a user types it into a shell.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// An argument as a shell word, quoted if necessary.
std::string shell_word(const std::string& text);

/// "penstock VERB ARGUMENTS...".
std::string command_text(std::string_view verb, std::span<const std::string> arguments);

}  // namespace penstock
