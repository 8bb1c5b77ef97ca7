// SPDX-License-Identifier: Apache-2.0
// Turns component names into names that GoogleTest accepts: letters, digits and underscores.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace penstock {

inline std::string test_name(std::string_view component) {
  std::string name(component);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

}  // namespace penstock
