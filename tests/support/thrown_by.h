// SPDX-License-Identifier: Apache-2.0
// Error texts of calls that must fail, and what texts say.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

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

/// Does `text` have `part`? If it is expected to, the failure shows both.
inline testing::AssertionResult says(std::string_view text, std::string_view part) {
  const bool found = text.find(part) != std::string_view::npos;
  return (found ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "'" << text << "' " << (found ? "has" : "lacks") << " '" << part << "'";
}

/// Does one of the texts, such as the notes of a run, have `part`?
inline bool mentions(std::span<const std::string> texts, std::string_view part) {
  return std::ranges::any_of(texts, [&](const std::string& text) { return says(text, part); });
}

}  // namespace penstock
