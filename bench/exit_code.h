// SPDX-License-Identifier: Apache-2.0
// The exit codes that all verbs share; bench/README.md has the table.
#pragma once

#include <exception>

namespace penstock {

/// The code for a failure, by its kind.
int exit_code_of(const std::exception_ptr& failure);

}  // namespace penstock
