// SPDX-License-Identifier: Apache-2.0
#include "dataflow/image_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Checked before a file is read: a hundred times the largest photographs.
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{256} << 20;

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

/// Names in `directory` for which `wanted` holds, in byte order.
template <typename Wanted>
std::vector<std::string> list_names(const fs::path& directory, Wanted wanted) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      std::string name = entry.path().filename().native();
      if (name.front() != '.' && wanted(entry)) names.push_back(std::move(name));
    }
  } catch (const fs::filesystem_error& error) {
    refuse_folder(directory.native(), "cannot be read: " + error.code().message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// An open file, closed when it goes.
class File {
 public:
  explicit File(const char* path) : descriptor_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const noexcept { return descriptor_; }

 private:
  const int descriptor_;
};

[[noreturn]] void refuse_file(const char* path, const std::string& problem) {
  throw DataError("reading '" + std::string(path) + "': " + problem +
                  "; expected a readable image file; replace it, or pass --on-bad-sample skip");
}

/// Adds the images of one class.
void list_class(const fs::path& folder, std::int32_t label, ImageFiles& images) {
  for (const std::string& name : list_names(folder, [](const fs::directory_entry& entry) {
         return has_image_extension(entry.path()) && !entry.is_directory();
       })) {
    images.files.add((folder / name).native());
    images.labels.push_back(label);
  }
}

/// Names of the class folders below `directory`.
std::vector<std::string> list_classes(const std::string& directory, std::int32_t limit) {
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

}  // namespace

ImageFiles list_image_files(const std::string& directory, std::int32_t classes) {
  const fs::path root(directory);
  const std::vector<std::string> names = list_classes(directory, classes);
  ImageFiles images;
  images.classes = static_cast<std::int32_t>(names.size());
  for (std::size_t label = 0; label < names.size(); ++label) {
    list_class(root / names[label], static_cast<std::int32_t>(label), images);
  }
  if (images.labels.empty()) {
    std::error_code error;
    const bool is_parent = fs::is_directory(root / "train", error);
    refuse_folder(directory,
                  "has no images in its " + std::to_string(names.size()) + " class folders" +
                      (is_parent ? " (did you mean '" + (root / "train").native() + "'?)" : ""));
  }
  images.files.shrink_to_fit();
  images.labels.shrink_to_fit();
  return images;
}

void read_image_file(const char* path, std::vector<std::byte>& bytes) {
  const File file(path);
  struct stat status {};
  if (file.descriptor() < 0 || ::fstat(file.descriptor(), &status) != 0) {
    refuse_file(path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) refuse_file(path, "it is no regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size == 0) refuse_file(path, "it is empty");
  if (size > kMaxFileBytes) {
    refuse_file(path, "it has " + std::to_string(size) + " bytes, more than the limit of " +
                          std::to_string(kMaxFileBytes));
  }
  bytes.resize(size);
  for (std::size_t done = 0; done < size;) {
    const ssize_t count = ::read(file.descriptor(), bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_file(path, std::strerror(errno));
    if (count == 0) refuse_file(path, "it ended after " + std::to_string(done) + " bytes");
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace penstock
