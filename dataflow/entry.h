// SPDX-License-Identifier: Apache-2.0
// Looks components up by name in their constant tables, and suggests a near name if there is no
// match. Names compare without case, and '_' equals '-'. If an entry has `aliases`, a string of
// names separated by spaces, those names find it too.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/error.h"

namespace penstock {

/// A component that has a known name but is not part of this program.
struct AbsentEntry {
  std::string_view name, reason;
};

/// One kind of component: those in this program, and those that it knows by name but lacks.
template <typename Entry>
struct Table {
  std::string_view kind;  ///< the name that a user reads: "feeder (--fake-location)"
  std::span<const Entry* const> entries;
  std::span<const AbsentEntry> absent;
};

/// Lower case, with '-' for '_'.
inline std::string canonical_name(std::string_view name) {
  std::string result(name);
  for (char& c : result) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

/// The Levenshtein distance: single-character insertions, deletions and substitutions.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

/// The known name nearest to `name`; empty if none is near enough to be a typing error.
inline std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  const std::string canonical = canonical_name(name);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, canonical.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(canonical, canonical_name(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

/// Joins the words: "a, b, c".
inline std::string join(std::span<const std::string> words, std::string_view separator = ", ") {
  std::string result;
  for (const std::string& word : words) {
    if (!result.empty()) result += separator;
    result += word;
  }
  return result;
}

/// The entry's name, then its aliases.
template <typename Entry>
std::vector<std::string> names_of(const Entry& entry) {
  std::vector<std::string> names{std::string(entry.name)};
  if constexpr (requires { entry.aliases; }) {
    const std::string_view aliases = entry.aliases;
    for (std::size_t begin = 0; begin < aliases.size();) {
      const std::size_t end = std::min(aliases.find(' ', begin), aliases.size());
      if (end > begin) names.emplace_back(aliases.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

/// The entry of that name or alias, or null.
template <typename Entry>
const Entry* match_entry(const Table<Entry>& table, std::string_view name) {
  const std::string canonical = canonical_name(name);
  for (const Entry* entry : table.entries) {
    for (const std::string& known : names_of(*entry)) {
      if (canonical_name(known) == canonical) return entry;
    }
  }
  return nullptr;
}

/// Throws ConfigError for an unknown name, Unavailable for a component that this program lacks.
template <typename Entry>
const Entry& find_entry(const Table<Entry>& table, std::string_view name) {
  if (const Entry* entry = match_entry(table, name)) return *entry;
  const std::string canonical = canonical_name(name);
  std::vector<std::string> built, known;
  for (const Entry* entry : table.entries) {
    std::vector<std::string> names = names_of(*entry);
    built.push_back(names.front());
    known.insert(known.end(), names.begin(), names.end());
  }
  for (const AbsentEntry& absent : table.absent) {
    if (canonical_name(absent.name) == canonical) {
      throw Unavailable("{} '{}' is known, but {}; built here: {}", table.kind, absent.name,
                        absent.reason, join(built));
    }
    known.emplace_back(absent.name);
  }
  std::string message = fmt::format("unknown {} '{}'", table.kind, name);
  if (const std::string guess = nearest_name(name, known); !guess.empty()) {
    message += fmt::format("; did you mean '{}'", guess);
    for (const AbsentEntry& absent : table.absent) {
      if (absent.name == guess) message += fmt::format(" (known, but {})", absent.reason);
    }
    message += "?";
  }
  throw ConfigError("{}; built here: {}", message, join(built));
}

}  // namespace penstock
