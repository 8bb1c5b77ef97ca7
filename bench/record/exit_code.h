// SPDX-License-Identifier: Apache-2.0
// The exit codes that all verbs share; docs/troubleshooting.md has the table.
#pragma once

#include <exception>
#include <string>

namespace penstock {

/// What to tell the user about `error`: its text, or the limit that the process has met.
std::string failure_text(const std::exception& error);

/// The code for a failure, by its kind.
int exit_code_of(const std::exception_ptr& failure);

}  // namespace penstock
