// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/detect_source.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>
#include <system_error>

#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/source.h"
#include "dataflow/values/crc32c.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

/// A format by the bytes of a file.
struct Magic {
  std::size_t at;
  std::string_view bytes, format;
  std::string_view source{};    ///< that reads it; empty: none does
  bool overrules_name = false;  ///< whatever the name shows, it is this format
};
constexpr Magic kMagics[] = {
    {0, "PAR1", "a Parquet file", "", true},
    {0, "ARROW1", "an Arrow file", "", true},
    {0, {"\xff\xff\xff\xff", 4}, "an Arrow stream", "", true},
    {0, {"SQLite format 3", 16}, "an SQLite database", "", true},
    {0, {"\0\0\x08", 3}, "an IDX file, as of MNIST"},
    {0, "MATLAB 5.0", "a MATLAB file"},
    {0, "PK\x03\x04", "a zip archive"},
    {0, "7z\xbc\xaf", "a 7-Zip archive"},
    {0, "Rar!", "a RAR archive"},
    {0, "\x80\x02", "a Python pickle"},
    {0, "\x80\x03", "a Python pickle"},
    {0, "\x80\x04", "a Python pickle"},
    {0, "\x80\x05", "a Python pickle"},
    {0, "\x89HDF", "an HDF5 file", "hdf5"},
    {0, "\x93NUMPY", "a NumPy array", "raw"},
    {16, "\xde\xc0\xef\xbe", "an LMDB database", "lmdb"},
    {257, "ustar", "a tar file", "webdataset"},
};
constexpr Magic kTfRecord{0, "", "a TFRecord file", "tfrecord"};

/// The format that the first bytes of a file show; null: none of these.
const Magic* magic_of(const fs::path& path) {
  const std::string front = InputFile(path).part(0, 264);
  const std::string_view text = front;
  for (const Magic& magic : kMagics) {
    if (text.size() > magic.at && text.substr(magic.at).starts_with(magic.bytes)) return &magic;
  }
  if (text.size() < 12) return nullptr;
  const auto length = std::as_bytes(std::span(text.substr(0, 8)));
  const auto crc = values::value_at<std::uint32_t>(std::as_bytes(std::span(text)), 8);
  return values::masked_crc32c(values::crc32c(length)) == crc ? &kTfRecord : nullptr;
}

[[noreturn]] void refuse_format(const std::string& path, std::string_view format) {
  throw ConfigError(
      "'{}' is {}, which is not supported; expected a data set of `penstock list source`; convert "
      "it, or feed it with a loader (--loader FILE.py:FUNCTION)",
      path, format);
}

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
  fs::path first,
      first_shown;  // in byte order: of all files, and of those whose names show a source
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().native();
    if (name.front() == '.' || name.front() == '_') continue;
    std::error_code ignored;
    std::set<std::string> shown;
    if (entry->is_directory(ignored)) {
      if (name.starts_with("cifar-100-")) refuse_format(entry->path().native(), "CIFAR-100");
      has_folders = true;
      add_sources(name + '/', shown);
    } else {
      add_sources(name, shown);
      for (fs::path* const path : {&first, shown.empty() ? &first : &first_shown}) {
        if (path->empty() || entry->path() < *path) *path = entry->path();
      }
    }
    sources.merge(shown);
  }
  if (error) {
    throw ConfigError("the data in '{}' cannot be read: {}; check --data-dir", folder,
                      error.message());
  }
  if (const Magic* const magic = magic_of(first_shown); magic != nullptr && magic->overrules_name) {
    refuse_format(first_shown.native(), magic->format);
  }
  if (sources.empty() && has_folders) sources.insert("image-folder");
  if (!sources.empty()) return sources;
  if (const Magic* const magic = magic_of(first)) {
    if (magic->source.empty()) refuse_format(first.native(), magic->format);
    throw ConfigError("'{}' is {} under another name; name the files, such as --data-dir '{}'",
                      first.native(), magic->format, first.native());
  }
  return sources;
}

}  // namespace

std::string format_of(const std::string& path) {
  const Magic* const magic = magic_of(path);
  return magic == nullptr ? "" : std::string(magic->format);
}

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
    const Magic* const magic = magic_of(first);
    if (magic != nullptr && (sources.empty() || magic->overrules_name)) {
      if (magic->source.empty()) refuse_format(first, magic->format);
      sources.emplace(magic->source);
    }
  }
  if (sources.empty()) return "image-folder";
  if (sources.size() == 1) return *sources.begin();
  std::string names;
  for (const std::string& source : sources) names += (names.empty() ? "" : ", ") + source;
  throw ConfigError(
      "the data in '{}' are files of several formats ({}); expected one; name the source, such as "
      "--fake-location queue:source={}, or the files",
      place, names, *sources.begin());
}

ComponentText source_text(const std::string& text, const std::string& place) {
  ComponentText parts = parse_component(text);
  if (parts.name == "auto") parts.name = detect_source(place);
  return parts;
}

}  // namespace penstock::datasets
