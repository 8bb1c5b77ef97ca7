// SPDX-License-Identifier: Apache-2.0
// A folder of classes as ImageNet is unpacked: `directory/<class>/<image>`. Classes in byte order
// are the labels 0, 1, ..., as torchvision's ImageFolder numbers them. Names that begin with a dot
// are ignored. Files are listed by their extension; whether they are images, decoding tells.
//
// Memory: all paths in one block, and sixteen bytes a file beside it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "dataflow/source.h"

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

void read_file(const char* path, std::vector<std::byte>& bytes) {
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

class ImageFolder final : public Source {
 public:
  explicit ImageFolder(const DataPlan& plan) : plan_(plan) {
    PENSTOCK_ASSERT(plan.rank >= 0 && plan.rank < plan.ranks);
    list_files();
    const std::uint64_t files = labels_.size();
    if (files < static_cast<std::uint64_t>(plan.ranks)) {
      throw ConfigError("the image folder '" + plan.directory + "' has " + std::to_string(files) +
                        " images for " + std::to_string(plan.ranks) +
                        " ranks; expected at least one for each");
    }
    order_.resize(files);
    epoch_ = plan.first_sample / size();
    begin_epoch();
    position_ +=
        static_cast<std::size_t>(plan.first_sample % size()) * static_cast<std::size_t>(plan.ranks);
  }

  bool next(Sample& sample) override {
    if (position_ >= order_.size()) {
      ++epoch_;
      begin_epoch();
    }
    if (plan_.epochs >= 0 && epoch_ >= static_cast<std::uint64_t>(plan_.epochs)) return false;
    const std::uint32_t index = order_[position_];
    position_ += static_cast<std::size_t>(plan_.ranks);
    const char* const path = paths_.data() + offsets_[index];
    sample.label = labels_[index];
    sample.index = index;
    sample.epoch = epoch_;
    sample.file = path;
    sample.offset = 0;
    read_file(path, sample.bytes);
    return true;
  }

  std::uint64_t size() const noexcept override {
    const auto rank = static_cast<std::size_t>(plan_.rank),
               ranks = static_cast<std::size_t>(plan_.ranks);
    return (order_.size() - rank + ranks - 1) / ranks;
  }
  std::int32_t classes() const noexcept override { return classes_; }

 private:
  void list_files() {
    const fs::path root(plan_.directory);
    std::error_code error;
    const fs::file_status status = fs::status(root, error);
    if (status.type() == fs::file_type::not_found) refuse_folder(plan_.directory, "does not exist");
    if (error) refuse_folder(plan_.directory, "cannot be read: " + error.message());
    if (!fs::is_directory(status)) refuse_folder(plan_.directory, "is no folder");
    const std::vector<std::string> classes =
        list_names(root, [](const fs::directory_entry& entry) { return entry.is_directory(); });
    if (classes.empty()) {
      refuse_folder(plan_.directory, fs::is_empty(root) ? "is empty" : "has no class folders");
    }
    if (classes.size() > static_cast<std::size_t>(plan_.classes)) {
      throw ConfigError("the image folder '" + plan_.directory + "' has " +
                        std::to_string(classes.size()) + " classes; the model has " +
                        std::to_string(plan_.classes) + " outputs; pass --classes " +
                        std::to_string(classes.size()) + ", or choose another folder or model");
    }
    classes_ = static_cast<std::int32_t>(classes.size());
    for (std::size_t label = 0; label < classes.size(); ++label) {
      list_class(root / classes[label], static_cast<std::int32_t>(label));
    }
    if (labels_.empty()) {
      const bool is_parent = fs::is_directory(root / "train", error);
      refuse_folder(plan_.directory,
                    "has no images in its " + std::to_string(classes.size()) + " class folders" +
                        (is_parent ? " (did you mean '" + (root / "train").native() + "'?)" : ""));
    }
    // Positions and indices are 32 bits wide.
    PENSTOCK_ASSERT(labels_.size() < (std::uint64_t{1} << 32));
    paths_.shrink_to_fit();
    offsets_.shrink_to_fit();
    labels_.shrink_to_fit();
  }

  void list_class(const fs::path& folder, std::int32_t label) {
    for (const std::string& name : list_names(folder, [](const fs::directory_entry& entry) {
           return has_image_extension(entry.path()) && !entry.is_directory();
         })) {
      offsets_.push_back(paths_.size());
      labels_.push_back(label);
      paths_ += (folder / name).native();
      paths_ += '\0';
    }
  }

  /// The order of all ranks' samples in this epoch; each rank takes every ranks-th of them.
  void begin_epoch() {
    position_ = static_cast<std::size_t>(plan_.rank);
    std::iota(order_.begin(), order_.end(), 0U);
    if (!plan_.shuffle) return;
    Random random(plan_.seed, epoch_, kShuffleStream);
    for (std::size_t i = order_.size() - 1; i > 0; --i) {
      std::swap(order_[i], order_[random.below(i + 1)]);
    }
  }

  /// Keeps the shuffle's numbers apart from those of any sample.
  static constexpr std::uint64_t kShuffleStream = ~std::uint64_t{0};

  const DataPlan plan_;
  std::string paths_;                   // each closed by a zero
  std::vector<std::uint64_t> offsets_;  // into paths_, by index
  std::vector<std::int32_t> labels_;    // by index
  std::vector<std::uint32_t> order_;    // indices, in this epoch's order
  std::size_t position_ = 0;            // in order_
  std::int32_t classes_ = 0;
  std::uint64_t epoch_ = 0;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options&) {
  return std::make_unique<ImageFolder>(plan);
}

}  // namespace

extern constinit const SourceEntry image_folder_source{
    .name = "image-folder",
    .summary = "a folder of classes, as ImageNet is unpacked: directory/<class>/<image>",
    .make = make,
};

}  // namespace penstock
