// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/manifest.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "dataflow/datasets/mapped_file.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"
#include "dataflow/values/crc32c.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic{"penstock list\r\n\0", 16};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kVersionAt = 16, kCrcAt = 20, kClassesAt = 24, kFilesAt = 32,
                        kNameBytesAt = 40, kHeadBytes = 48, kClassBytes = 16;
constexpr std::uint64_t kMostFiles = (std::uint64_t{1} << 32) - 1;

/// Takes a name, which comes after the name `before`, from the front of a block.
std::string_view take_name(std::string_view& block, std::string_view before) {
  const std::size_t end = block.find('\0');
  if (end == std::string_view::npos) throw DataError("it has fewer names than files and classes");
  const std::string_view name = block.substr(0, end);
  if (name.empty() || name.front() == '.' || name.find('/') != std::string_view::npos) {
    throw DataError("it has '{}' as a name", name);
  }
  if (name <= before) throw DataError("the name '{}' is not sorted after '{}'", name, before);
  block.remove_prefix(end + 1);
  return name;
}

/// Checks that the classes and the block of names are complete.
void check_sizes(std::span<const std::byte> bytes, std::uint64_t classes, std::uint64_t files) {
  const std::uint64_t room = bytes.size() - kHeadBytes;
  const auto name_bytes = values::value_at<std::uint64_t>(bytes, kNameBytesAt);
  if (classes == 0 || files == 0) throw DataError("it lists nothing");
  if (classes > room / kClassBytes || name_bytes != room - classes * kClassBytes) {
    throw DataError("it has {} bytes, and not those of {} classes and {} bytes of names",
                    bytes.size(), classes, name_bytes);
  }
  if (files > kMostFiles || files > name_bytes / 2) {
    throw DataError("it says to list {} files in {} bytes", files, name_bytes);
  }
}

template <typename Value>
void append(std::string& text, Value value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The folder's time in nanoseconds since 1970; empty if it does not exist.
std::optional<std::int64_t> modified(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return std::nullopt;
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

/// Why a manifest does not match the folder's current state; empty if it does.
std::string difference(const fs::path& root, const std::vector<std::string>& folders,
                       const Manifest& manifest) {
  for (std::size_t i = 0; i < std::max(folders.size(), manifest.classes.size()); ++i) {
    const std::string_view now = i < folders.size() ? folders[i] : std::string_view(),
                           then = i < manifest.classes.size() ? manifest.classes[i].name
                                                              : std::string_view();
    if (now != then) {
      const bool is_new = then.empty() || (!now.empty() && now < then);
      return is_new ? fmt::format("the class folder '{}' is not in it", now)
                    : fmt::format("the class folder '{}' is in it, but no longer exists", then);
    }
    if (modified(root / folders[i]) != manifest.classes[i].modified) {
      return fmt::format("the class folder '{}' changed after it was written", folders[i]);
    }
  }
  return {};
}

/// Empty, with the reason, if the manifest cannot be used.
std::optional<ImageFiles> try_manifest(const std::string& directory, const std::string& path,
                                       std::int32_t classes, std::string& reason) {
  const std::vector<std::string> folders = list_class_folders(directory, classes);
  try {
    auto file = std::make_shared<const MappedFile>(path);
    const Manifest manifest = parse_manifest(file->bytes());
    reason = difference(directory, folders, manifest);
    if (!reason.empty()) return std::nullopt;
    ImageFiles images;
    images.files = FileList(manifest.names, std::move(file));
    for (const ManifestClass& folder : manifest.classes) {
      images.files.place_in((fs::path(directory) / folder.name).native(), folder.files);
      images.ends.push_back(folder.files + (images.ends.empty() ? 0 : images.ends.back()));
    }
    images.note = fmt::format(
        "the list of {} images is that of '{}', which is up to date: the times of the class "
        "folders match",
        manifest.files, path);
    return images;
  } catch (const DataError& error) {
    reason = std::string("it is damaged: ") + error.what();
  } catch (const ConfigError& error) {
    reason = error.what();
  }
  return std::nullopt;
}

std::string command(const std::string& directory, const std::string& path) {
  return fmt::format("`penstock dataset index --data-dir {}{}`", directory,
                     path == default_manifest(directory) ? "" : " --out " + path);
}

}  // namespace

Manifest parse_manifest(std::span<const std::byte> bytes) {
  const std::string_view text = values::text_of(bytes);
  if (!text.starts_with(kMagic)) throw DataError("it is no manifest");
  if (bytes.size() < kHeadBytes) throw DataError("it ends after {} bytes", bytes.size());
  if (const auto version = values::value_at<std::uint32_t>(bytes, kVersionAt);
      version != kVersion) {
    throw DataError("it has version {}; known is {}", version, kVersion);
  }
  const auto classes = values::value_at<std::uint64_t>(bytes, kClassesAt);
  Manifest manifest{
      .classes = {}, .files = values::value_at<std::uint64_t>(bytes, kFilesAt), .names = {}};
  check_sizes(bytes, classes, manifest.files);
  if (values::crc32c(bytes.subspan(kClassesAt)) != values::value_at<std::uint32_t>(bytes, kCrcAt)) {
    throw DataError("its checksum does not match its data");
  }
  std::string_view names = text.substr(kHeadBytes + classes * kClassBytes);
  manifest.classes.reserve(classes);
  std::uint64_t left = manifest.files;
  std::string_view before;
  for (std::uint64_t at = kHeadBytes; manifest.classes.size() < classes; at += kClassBytes) {
    before = take_name(names, before);
    const auto files = values::value_at<std::uint64_t>(bytes, at);
    if (files > left) throw DataError("its classes have more files than it says");
    left -= files;
    manifest.classes.push_back({before, files, values::value_at<std::int64_t>(bytes, at + 8)});
  }
  if (left > 0) throw DataError("its classes have fewer files than it says");
  manifest.names = names;
  for (const ManifestClass& folder : manifest.classes) {
    before = {};
    for (std::uint64_t i = 0; i < folder.files; ++i) before = take_name(names, before);
  }
  if (!names.empty()) throw DataError("it has more names than files and classes");
  return manifest;
}

std::string manifest_head(const Manifest& manifest) {
  std::string table, names;
  for (const ManifestClass& folder : manifest.classes) {
    append(table, folder.files);
    append(table, folder.modified);
    names += folder.name;
    names += '\0';
  }
  std::string checked;
  append(checked, std::uint64_t{manifest.classes.size()});
  append(checked, manifest.files);
  append(checked, std::uint64_t{names.size() + manifest.names.size()});
  checked += table + names;
  const std::uint32_t crc = values::crc32c(std::as_bytes(std::span(manifest.names)),
                                           values::crc32c(std::as_bytes(std::span(checked))));
  std::string head(kMagic);
  append(head, kVersion);
  append(head, crc);
  return head + checked;
}

std::string default_manifest(const std::string& directory) {
  return (fs::path(directory) / ".penstock-manifest").native();
}

ImageFiles read_manifest(const std::string& directory, const std::string& path,
                         std::int32_t classes) {
  std::error_code error;
  std::string reason = "it does not exist";
  if (fs::exists(path, error)) {
    if (auto images = try_manifest(directory, path, classes, reason)) return std::move(*images);
  }
  throw ConfigError(
      "the manifest '{}' cannot list the image folder '{}': {}; write it with {}, or pass "
      "manifest=off",
      path, directory, reason, command(directory, path));
}

ImageFiles list_or_read_manifest(const std::string& directory, std::int32_t classes,
                                 const std::stop_token& stop) {
  const std::string path = default_manifest(directory);
  std::error_code error;
  if (!fs::exists(path, error)) return list_image_files(directory, classes, stop);
  std::string reason;
  if (auto images = try_manifest(directory, path, classes, reason)) return std::move(*images);
  ImageFiles images = list_image_files(directory, classes, stop);
  images.note +=
      fmt::format("{}the manifest '{}' was not used, and the folder was listed: {}; {} renews it",
                  images.note.empty() ? "" : "; ", path, reason, command(directory, path));
  return images;
}

std::optional<WrittenManifest> write_manifest(const std::string& directory, const std::string& path,
                                              const std::stop_token& stop) {
  constexpr std::int32_t kMostClasses = std::numeric_limits<std::int32_t>::max();
  const std::vector<std::string> folders = list_class_folders(directory, kMostClasses);
  Manifest manifest;
  for (const std::string& folder : folders) {
    manifest.classes.push_back(
        {.name = folder, .modified = modified(fs::path(directory) / folder).value_or(0)});
  }
  const ImageFiles images = list_image_files(directory, kMostClasses, stop);
  if (stop.stop_requested()) return std::nullopt;
  const std::string changed = difference(directory, folders, manifest);
  if (!changed.empty() || images.ends.size() != folders.size()) {
    throw ConfigError(
        "the image folder '{}' changed while it was listed; wait until no process writes to it, "
        "then list it again",
        directory);
  }
  manifest.files = images.files.size();
  manifest.names = images.files.names();
  for (std::size_t label = 0; label < folders.size(); ++label) {
    manifest.classes[label].files = images.ends[label] - (label > 0 ? images.ends[label - 1] : 0);
  }
  const std::string head = manifest_head(manifest);
  OutputFile file(path,
                  "make room, or choose another place with --out FILE, which "
                  "queue:source='image-folder:manifest=FILE' then names");
  file.write(head);
  file.write(manifest.names);
  file.commit();
  return WrittenManifest{.classes = folders.size(),
                         .files = images.files.size(),
                         .bytes = head.size() + manifest.names.size(),
                         .note = images.note};
}

}  // namespace penstock::datasets
