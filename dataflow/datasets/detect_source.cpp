// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/detect_source.h"

#include <filesystem>
#include <set>

#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "dataflow/source.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

/// Adds the sources that a name shows.
void add_sources(const std::string& name, std::set<std::string>& sources) {
  for (const SourceEntry* const entry : source_table().entries) {
    if (entry->detects != nullptr && entry->detects(name)) sources.emplace(entry->name);
  }
}

/// The sources of the files in a folder or in its class folders.
std::set<std::string> sources_in(const std::string& folder) {
  std::set<std::string> sources;
  bool has_folders = false;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().native();
    if (name.front() == '.' || name.front() == '_') continue;
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      has_folders = true;
      name += '/';
    }
    add_sources(name, sources);
  }
  if (error) {
    throw ConfigError("the data in '" + folder + "' cannot be read: " + error.message() +
                      "; check --data-dir");
  }
  if (sources.empty() && has_folders) sources.insert("image-folder");
  return sources;
}

}  // namespace

std::string detect_source(const std::string& place) {
  std::error_code error;
  std::set<std::string> sources;
  if (fs::is_directory(place, error)) {
    sources = sources_in(place);
  } else {
    const std::string first = expand_braces(place).front();
    // For a missing folder, the image-folder source has the clearest message.
    if (!fs::exists(first, error)) return "image-folder";
    add_sources(fs::path(first).filename().native(), sources);
  }
  if (sources.empty()) return "image-folder";
  if (sources.size() == 1) return *sources.begin();
  std::string names;
  for (const std::string& source : sources) names += (names.empty() ? "" : ", ") + source;
  throw ConfigError("the data in '" + place + "' are files of several formats (" + names +
                    "); expected one; name the source, such as --fake-location queue:source=" +
                    *sources.begin() + ", or the files");
}

ComponentText source_text(const std::string& text, const std::string& place) {
  ComponentText parts = parse_component(text);
  if (parts.name == "auto") parts.name = detect_source(place);
  return parts;
}

}  // namespace penstock::datasets
