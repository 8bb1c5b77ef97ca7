// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a label file: label three images
// by it. Throws std::logic_error where an answer contradicts itself.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/flat_images.h"

namespace penstock {

/// Three images in a folder, and a file in memory for their labels.
class LabelledFolder {
 public:
  LabelledFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr || file_ < 0) throw std::runtime_error("no folder");
    folder_ = name;
    for (const char* image : {"a.JPEG", "b.JPEG", "c.JPEG"}) std::ofstream(folder_ / image) << 'x';
  }
  LabelledFolder(const LabelledFolder&) = delete;
  LabelledFolder& operator=(const LabelledFolder&) = delete;
  ~LabelledFolder() {
    ::close(file_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  ImageFiles label(std::span<const std::byte> labels, std::int32_t classes) const {
    if (::ftruncate(file_, 0) != 0 ||
        ::pwrite(file_, labels.data(), labels.size(), 0) != static_cast<ssize_t>(labels.size())) {
      throw std::runtime_error("the labels cannot be written");
    }
    return list_flat_images({.directory = folder_.string(),
                             .labels = "/proc/self/fd/" + std::to_string(file_),
                             .classes = classes});
  }

 private:
  const int file_ = ::memfd_create("labels", MFD_CLOEXEC);
  std::filesystem::path folder_;
};

/// Whether they label the images.
inline bool try_label_file(std::span<const std::byte> bytes) {
  static const LabelledFolder folder;
  constexpr std::int32_t kClasses = 10;
  try {
    const ImageFiles images = folder.label(bytes, kClasses);
    if (images.files.size() != 3 || images.ends.empty() || images.ends.back() != 3) {
      throw std::logic_error("another number of labels");
    }
    std::int32_t before = 0;
    for (std::size_t file = 0; file < 3; ++file) {
      const std::int32_t label = images.label(file);
      if (label < before || label >= kClasses) throw std::logic_error("a label out of order");
      before = label;
    }
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

inline std::vector<std::vector<std::byte>> label_file_corpus() {
  std::vector<std::vector<std::byte>> corpus;
  for (const std::string_view text :
       {"3\n1\n2\n", "cat\ndog\ncat\n", "c.JPEG 9\nb.JPEG 0\na.JPEG 4\n",
        "a.JPEG\tcat\r\n\r\nb.JPEG\tdog\r\nc.JPEG\tant"}) {
    const auto bytes = std::as_bytes(std::span(text));
    corpus.emplace_back(bytes.begin(), bytes.end());
  }
  return corpus;
}

}  // namespace penstock
