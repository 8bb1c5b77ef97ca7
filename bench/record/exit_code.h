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

/// The exit code of work that was asked to stop: 128 and the signal's number; 130, as for Ctrl-C,
/// if something else asked.
int exit_code_of_stop() noexcept;
/// From here on, `signal` asked this process to stop. Any thread may call it.
void note_stop_signal(int signal) noexcept;

}  // namespace penstock
