// SPDX-License-Identifier: Apache-2.0
// Returns the error texts of calls that must fail.
#pragma once

#include <string>

namespace penstock {

/// The text of the exception of type Kind that `call` throws.
template <typename Kind, typename Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace penstock
