// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/image_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "dataflow/datasets/detect_source.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/file_reader.h"
#include "dataflow/machine/input_file.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdvice =
    "expected <class>/<image>.JPEG in it; `penstock dataset make` writes such a folder";

/// True if a file without an extension begins as a JPEG or PNG image.
bool begins_as_image(const fs::path& path) {
  const std::string text = InputFile(path).part(0, 4);
  return text.starts_with("\xff\xd8\xff") || text == "\x89PNG";
}

[[noreturn]] void refuse_folder(const std::string& path, const std::string& problem) {
  throw ConfigError("the image folder '{}' {}; {}", path, problem, kAdvice);
}

/// Names in `directory` that `accepts` accepts, in byte order.
template <typename Accepts>
std::vector<std::string> list_names(const fs::path& directory, Accepts accepts) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      std::string name = entry.path().filename().native();
      if (name.front() != '.' && accepts(entry)) names.push_back(std::move(name));
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

/// Images that a listing leaves out.
class LeftOut {
 public:
  /// False for an image that is not decoded, which it counts.
  bool is_listed(const fs::directory_entry& entry) {
    if (entry.is_directory()) return false;
    const ListedFile kind = listed_file(entry.path().native());
    if (kind == ListedFile::undecoded && undecoded_++ == 0) undecoded_example_ = entry.path();
    if (kind == ListedFile::other && other_.empty()) other_ = entry.path().native();
    return kind == ListedFile::image;
  }

  /// Counts the images in and below a folder in a class folder.
  void look_deeper(const fs::path& folder) {
    std::error_code error;
    fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                           error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      std::error_code ignored;
      if (entry->path().filename().native().front() == '.') {
        entry.disable_recursion_pending();
      } else if (!entry->is_directory(ignored) &&
                 listed_file(entry->path().native()) == ListedFile::image && deeper_++ == 0) {
        deeper_example_ = entry->path();
        levels_ = entry.depth() + 1;
      }
    }
  }

  /// The format of the first file that is no image; empty if it is unknown.
  std::string other_format() const {
    const std::string format = other_.empty() ? "" : format_of(other_);
    return format.empty() ? "" : fmt::format("; '{}' is {}", other_, format);
  }

  /// Empty if nothing was left out.
  std::string note() const {
    std::string text;
    if (deeper_ > 0) {
      text = fmt::format("{} images lie {} deeper than their class folders, such as '{}'", deeper_,
                         levels_ == 1 ? "one folder" : fmt::format("{} folders", levels_),
                         deeper_example_.native());
    }
    if (undecoded_ > 0) {
      text += fmt::format(
          "{}{} images are of a format that is not decoded, such as '{}'; convert them to JPEG or "
          "PNG",
          text.empty() ? "" : "; ", undecoded_, undecoded_example_.native());
    }
    return text;
  }

 private:
  std::uint64_t deeper_ = 0, undecoded_ = 0;
  int levels_ = 0;
  fs::path deeper_example_, undecoded_example_;
  std::string other_;
};

/// Adds the images of one class.
void list_class(const fs::path& folder, ImageFiles& images, LeftOut& left_out) {
  images.files.open_folder(folder.native());
  const auto accepts = [&](const fs::directory_entry& entry) {
    if (entry.is_directory()) left_out.look_deeper(entry.path());
    return left_out.is_listed(entry);
  };
  for (const std::string& name : list_names(folder, accepts)) images.files.add(name);
  images.ends.push_back(images.files.size());
}

}  // namespace

ListedFile listed_file(const std::string& path) {
  static constexpr std::string_view kDecoded[] = {".jpg",   ".jpeg", ".jpe", ".jfif",
                                                  ".pjpeg", ".pjp",  ".png"};
  static constexpr std::string_view kUndecoded[] = {".webp", ".bmp",  ".gif", ".ppm",  ".pgm",
                                                    ".tif",  ".tiff", ".jp2", ".avif", ".heic"};
  const fs::path name(path);
  const std::string extension = canonical_name(name.extension().native());
  if (extension.empty()) return begins_as_image(name) ? ListedFile::image : ListedFile::other;
  if (std::ranges::find(kDecoded, extension) != std::end(kDecoded)) return ListedFile::image;
  return std::ranges::find(kUndecoded, extension) != std::end(kUndecoded) ? ListedFile::undecoded
                                                                          : ListedFile::other;
}

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
    throw ConfigError(
        "the image folder '{}' has {} classes; the model has {} outputs; pass --classes {}, or "
        "choose another folder or model",
        directory, classes.size(), limit, classes.size());
  }
  return classes;
}

ImageFiles list_image_files(const std::string& directory, std::int32_t classes,
                            const std::stop_token& stop) {
  const fs::path root(directory);
  const std::vector<std::string> names = list_class_folders(directory, classes);
  ImageFiles images;
  LeftOut left_out;
  for (const std::string& name : names) {
    if (stop.stop_requested()) return images;
    list_class(root / name, images, left_out);
  }
  images.note = left_out.note();
  if (images.files.size() == 0) {
    std::error_code error;
    const bool is_parent = fs::is_directory(root / "train", error);
    refuse_folder(
        directory,
        fmt::format("has no images in its {} class folders{}{}{}", names.size(),
                    is_parent ? " (did you mean '" + (root / "train").native() + "'?)" : "",
                    images.note.empty() ? "" : "; " + images.note, left_out.other_format()));
  }
  if (!images.note.empty()) images.note = "left out: " + images.note;
  return images;
}

std::vector<std::string> list_image_names(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) refuse_folder(directory, "is no folder");
  std::vector<std::string> names = list_names(directory, [](const fs::directory_entry& entry) {
    return !entry.is_directory() && listed_file(entry.path().native()) == ListedFile::image;
  });
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
    if (count == 0) file.refuse(fmt::format("it ended after {} bytes", done));
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace penstock::datasets
