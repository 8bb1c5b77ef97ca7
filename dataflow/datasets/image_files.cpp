// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/image_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/sample_file.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdvice =
    "expected <class>/<image>.JPEG in it; `penstock dataset make` writes such a folder";

bool has_image_extension(const fs::path& path) {
  static constexpr std::string_view kExtensions[] = {
      ".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"};
  const std::string extension = canonical_name(path.extension().native());
  return std::find(std::begin(kExtensions), std::end(kExtensions), extension) !=
         std::end(kExtensions);
}

[[noreturn]] void refuse_folder(const std::string& path, const std::string& problem) {
  throw ConfigError("the image folder '" + path + "' " + problem + "; " + std::string(kAdvice));
}

/// Names in `directory` that `wanted` accepts, in byte order.
template <typename Wanted>
std::vector<std::string> list_names(const fs::path& directory, Wanted wanted) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      std::string name = entry.path().filename().native();
      if (name.front() != '.' && wanted(entry)) names.push_back(std::move(name));
    }
  } catch (const fs::filesystem_error& error) {
    const bool of_entry = error.path1() != directory;
    refuse_folder(directory.native(),
                  "cannot be read: " + (of_entry ? "'" + error.path1().native() + "': " : "") +
                      error.code().message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_image(const fs::directory_entry& entry) {
  return has_image_extension(entry.path()) && !entry.is_directory();
}

/// Adds the images of one class.
void list_class(const fs::path& folder, ImageFiles& images) {
  images.files.open_folder(folder.native());
  for (const std::string& name : list_names(folder, is_image)) images.files.add(name);
  images.ends.push_back(images.files.size());
}

}  // namespace

std::vector<std::string> list_class_folders(const std::string& directory, std::int32_t limit) {
  const fs::path root(directory);
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  if (status.type() == fs::file_type::not_found) refuse_folder(directory, "does not exist");
  if (error) refuse_folder(directory, "cannot be read: " + error.message());
  if (!fs::is_directory(status)) refuse_folder(directory, "is no folder");
  std::vector<std::string> classes =
      list_names(root, [](const fs::directory_entry& entry) { return entry.is_directory(); });
  if (classes.empty()) {
    refuse_folder(directory, fs::is_empty(root) ? "is empty" : "has no class folders");
  }
  if (classes.size() > static_cast<std::size_t>(limit)) {
    throw ConfigError("the image folder '" + directory + "' has " + std::to_string(classes.size()) +
                      " classes; the model has " + std::to_string(limit) +
                      " outputs; pass --classes " + std::to_string(classes.size()) +
                      ", or choose another folder or model");
  }
  return classes;
}

ImageFiles list_image_files(const std::string& directory, std::int32_t classes,
                            const std::stop_token& stop) {
  const fs::path root(directory);
  const std::vector<std::string> names = list_class_folders(directory, classes);
  ImageFiles images;
  for (const std::string& name : names) {
    if (stop.stop_requested()) return images;
    list_class(root / name, images);
  }
  if (images.files.size() == 0) {
    std::error_code error;
    const bool is_parent = fs::is_directory(root / "train", error);
    refuse_folder(directory,
                  "has no images in its " + std::to_string(names.size()) + " class folders" +
                      (is_parent ? " (did you mean '" + (root / "train").native() + "'?)" : ""));
  }
  return images;
}

std::vector<std::string> list_image_names(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) refuse_folder(directory, "is no folder");
  std::vector<std::string> names = list_names(directory, is_image);
  if (names.empty()) refuse_folder(directory, "contains no images");
  return names;
}

void read_image_file(const std::string& path, std::vector<std::byte>& bytes) {
  const SampleFile file(path.c_str());
  const std::uint64_t size = file.size_to_read();
  bytes.resize(size);
  for (std::size_t done = 0; done < size;) {
    const ssize_t count = ::read(file.descriptor(), bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) file.refuse(std::strerror(errno));
    if (count == 0) file.refuse("it ended after " + std::to_string(done) + " bytes");
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace penstock::datasets
