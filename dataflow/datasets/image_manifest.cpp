// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/image_manifest.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "dataflow/datasets/manifest.h"
#include "dataflow/datasets/mapped_file.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

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
      return is_new ? "the class folder '" + std::string(now) + "' is not in it"
                    : "the class folder '" + std::string(then) + "' is in it, but no longer exists";
    }
    if (modified(root / folders[i]) != manifest.classes[i].modified) {
      return "the class folder '" + folders[i] + "' changed after it was written";
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
    images.note = "the list of " + std::to_string(manifest.files) + " images is that of '" + path +
                  "', which is up to date: the times of the class folders match";
    return images;
  } catch (const DataError& error) {
    reason = std::string("it is damaged: ") + error.what();
  } catch (const ConfigError& error) {
    reason = error.what();
  }
  return std::nullopt;
}

std::string command(const std::string& directory, const std::string& path) {
  return "`penstock dataset index --data-dir " + directory +
         (path == default_manifest(directory) ? "" : " --out " + path) + "`";
}

}  // namespace

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
  throw ConfigError("the manifest '" + path + "' cannot list the image folder '" + directory +
                    "': " + reason + "; write it with " + command(directory, path) +
                    ", or pass manifest=off");
}

ImageFiles list_or_read_manifest(const std::string& directory, std::int32_t classes,
                                 const std::stop_token& stop) {
  const std::string path = default_manifest(directory);
  std::error_code error;
  if (!fs::exists(path, error)) return list_image_files(directory, classes, stop);
  std::string reason;
  if (auto images = try_manifest(directory, path, classes, reason)) return std::move(*images);
  ImageFiles images = list_image_files(directory, classes, stop);
  images.note = "the manifest '" + path + "' was not used, and the folder was listed: " + reason +
                "; " + command(directory, path) + " renews it";
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
        "the image folder '" + directory +
        "' changed while it was listed; wait until no process writes to it, then list it again");
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
                         .bytes = head.size() + manifest.names.size()};
}

}  // namespace penstock::datasets
