// SPDX-License-Identifier: Apache-2.0
// Label files of flat folders: label three images by one.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "dataflow/datasets/flat_images.h"
#include "dataflow/datasets/image_folder.h"
#include "tests/fuzz/target.h"
#include "tests/support/temp_folder.h"

namespace penstock::fuzz {
namespace {

/// Three images in a folder, and a file in memory for their labels.
class LabelledFolder {
 public:
  LabelledFolder() {
    for (const char* image : {"a.JPEG", "b.JPEG", "c.JPEG"}) folder_.write(image, Bytes(1));
  }
  LabelledFolder(const LabelledFolder&) = delete;
  LabelledFolder& operator=(const LabelledFolder&) = delete;
  ~LabelledFolder() { ::close(file_); }

  datasets::ImageFiles label(std::span<const std::byte> labels, std::int32_t classes) const {
    if (::ftruncate(file_, 0) != 0 ||
        ::pwrite(file_, labels.data(), labels.size(), 0) != static_cast<ssize_t>(labels.size())) {
      throw std::runtime_error("the labels cannot be written");
    }
    return datasets::list_flat_images({.directory = folder_.path().string(),
                                       .labels = "/proc/self/fd/" + std::to_string(file_),
                                       .classes = classes});
  }

 private:
  const int file_ = ::memfd_create("labels", MFD_CLOEXEC);
  const TempFolder folder_;
};

}  // namespace

std::size_t label_file(std::span<const std::byte> input) try {
  static const LabelledFolder folder;
  constexpr std::int32_t kClasses = 10;
  const datasets::ImageFiles images = folder.label(input, kClasses);
  ensure(images.files.size() == 3 && !images.ends.empty() && images.ends.back() == 3,
         "another number of labels");
  std::int32_t before = 0;
  for (std::size_t file = 0; file < 3; ++file) {
    const std::int32_t label = images.label(file);
    ensure(label >= before && label < kClasses, "a label out of order");
    before = label;
  }
  return 3;
} catch (const ConfigError&) {
  return 0;
}

}  // namespace penstock::fuzz
