// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/detect_source.h"

#include <cctype>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

bool is_numbered(std::string_view name) {
  const std::size_t of = name.find("-of-");
  const auto digit = [&](std::size_t at) {
    return at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0;
  };
  return of != std::string_view::npos && of > 0 && digit(of - 1) && digit(of + 4);
}

/// The source of one file; empty if its format is unknown.
std::string_view source_of_file(std::string_view name) {
  struct Ending {
    std::string_view text, source;
  };
  static constexpr Ending kEndings[] = {{".tar", "webdataset"}, {".tar.gz", "webdataset"},
                                        {".tgz", "webdataset"}, {".tar.zst", "webdataset"},
                                        {".rec", "recordio"},   {".beton", "beton"},
                                        {".mds", "mds"},        {".mdb", "lmdb"},
                                        {".lmdb", "lmdb"},      {".npy", "raw"}};
  for (const Ending& ending : kEndings) {
    if (name.ends_with(ending.text)) return ending.source;
  }
  if (name.find(".tfrecord") != std::string_view::npos) return "tfrecord";
  if (name.starts_with("data_batch_") || name == "test_batch" || name == "test_batch.bin") {
    return "cifar10";
  }
  return is_numbered(name) ? "tfrecord" : "";
}

/// The sources of the files in a folder or in its class folders.
std::set<std::string> sources_in(const std::string& folder) {
  std::set<std::string> sources;
  bool has_folders = false;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (name.front() == '.' || name.front() == '_') continue;
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      if (name.starts_with("cifar-10-batches-")) sources.insert("cifar10");
      has_folders = true;
    } else if (const std::string_view source = source_of_file(name); !source.empty()) {
      sources.emplace(source);
    }
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
    const std::string name = fs::path(first).filename().native();
    if (const std::string_view source = source_of_file(name); !source.empty()) {
      sources.emplace(source);
    }
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
