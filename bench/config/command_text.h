// SPDX-License-Identifier: Apache-2.0
// A command as a person types it into a shell.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// An argument as a shell needs it: quoted where that matters.
std::string shell_word(const std::string& text);

/// "penstock VERB ARGUMENTS...".
std::string command_text(std::string_view verb, std::span<const std::string> arguments);

}  // namespace penstock
