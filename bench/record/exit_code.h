// SPDX-License-Identifier: Apache-2.0
// The exit codes of all verbs. docs/troubleshooting.md lists them.
#pragma once

#include <exception>
#include <string>

namespace penstock {

/// The message for the user: the text of `error`, or the system limit that the process reached.
std::string failure_text(const std::exception& error);

/// The exit code for this kind of failure.
int exit_code_of(const std::exception_ptr& failure);

}  // namespace penstock
