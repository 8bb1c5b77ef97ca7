// SPDX-License-Identifier: Apache-2.0
#include "bench/config/command_text.h"

#include <algorithm>
#include <cctype>

namespace penstock {

std::string shell_word(const std::string& text) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_=,.:/+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') result += "'\\'";
    result += c;
  }
  result += '\'';
  return result;
}

std::string command_text(std::string_view verb, std::span<const std::string> arguments) {
  std::string text = "penstock " + std::string(verb);
  for (const std::string& word : arguments) text.append(" ").append(shell_word(word));
  return text;
}

}  // namespace penstock
