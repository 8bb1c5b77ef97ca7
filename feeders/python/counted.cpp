// SPDX-License-Identifier: Apache-2.0
#include "feeders/python/counted.h"

#include <algorithm>

#include "dataflow/error.h"

namespace penstock::python {

Counted parse_counted(std::string_view text, std::string_view what) {
  constexpr std::size_t kLongest = 20;
  const std::size_t end = text.find('=');
  if (end == text.npos && !text.empty()) return {"tokens", text};
  const std::string_view unit = text.substr(0, end);
  const bool is_word = std::ranges::all_of(
      unit, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; });
  if (end == text.npos || unit.empty() || unit == "img" || unit.size() > kLongest || !is_word ||
      end + 1 == text.size()) {
    throw ConfigError("{} is '{}'; expected KEY or UNIT=KEY, such as tokens=input_ids", what, text);
  }
  return {unit, text.substr(end + 1)};
}

}  // namespace penstock::python
