// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/markup.h"

#include <cstdint>

namespace penstock::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

struct Character {
  std::size_t bytes = 1;
  std::uint32_t code = 0;
  bool valid = false;
};

/// The first character of `text`, which is not empty (RFC 3629).
Character first_of(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {1, lead, true};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || surrogate) return {};
  return {bytes, code, true};
}

bool is_xml(std::uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
  return code != 0xFFFE && code != 0xFFFF && !(code >= 0x7F && code < 0xA0);
}

/// Em widths by kind of letter, close to those of DejaVu Sans, which is wider than most.
double em_width(char c) {
  if (std::string_view("il.,:;'|!j").find(c) != std::string_view::npos) return 0.33;
  if (std::string_view(" frt()[]-/").find(c) != std::string_view::npos) return 0.40;
  if (std::string_view("mwMW@%").find(c) != std::string_view::npos) return 0.95;
  if (c >= 'A' && c <= 'Z') return 0.70;
  return 0.63;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = first_of(text);
    const std::string_view bytes = text.substr(0, character.bytes);
    if (!character.valid || !is_xml(character.code)) {
      result += kReplacement;
    } else if (bytes == "&") {
      result += "&amp;";
    } else if (bytes == "<") {
      result += "&lt;";
    } else if (bytes == ">") {
      result += "&gt;";
    } else if (bytes == "\"") {
      result += "&quot;";
    } else if (bytes == "'") {
      result += "&#39;";
    } else {
      result += bytes;
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

std::size_t length_of(std::string_view text) {
  std::size_t length = 0;
  for (const char c : text) length += is_continuation(c) ? 0 : 1;
  return length;
}

double text_width(std::string_view text, double size) {
  double ems = 0;
  for (const char c : text) ems += is_continuation(c) ? 0 : em_width(c);
  return ems * size;
}

std::string shortened(std::string_view text, double width, double size) {
  if (text_width(text, size) <= width) return std::string(text);
  while (!text.empty() && text_width(text, size) + size > width) {
    while (text.size() > 1 && is_continuation(text.back())) text.remove_suffix(1);
    text.remove_suffix(1);
  }
  return std::string(text) + std::string(kEllipsis);
}

}  // namespace penstock::report
