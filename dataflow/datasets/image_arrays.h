// SPDX-License-Identifier: Apache-2.0
// Pixels in arrays: images of one shape in an array of uint8, [N,H,W,C], [N,C,H,W] or [N,H,W], and
// a label for each in a second array. Formats that store arrays share this.
#pragma once

#include <memory>
#include <string>

#include "dataflow/datasets/record_source.h"
#include "dataflow/options.h"
#include "dataflow/values/numpy_array.h"

namespace penstock::datasets {

/// For the option tables of these formats.
inline constexpr OptionSpec kImageArrayOptions[] = {
    {"layout", "auto",
     "order of dimensions: hwc, chw, hw or auto (from the shape, if it is unambiguous)"},
    {"channels", "rgb", "order of colours: rgb or bgr"},
};

/// The arrays of one shard.
struct ImageArrays {
  values::NumpyArray
      images;  ///< its data are a part of the shard, less than its shape if truncated
  values::NumpyArray labels;
  std::string label_path;               ///< the file of the labels
  std::shared_ptr<const void> owner{};  ///< of the labels' data, if not the shard
};

/// The layout of the images in an array. Throws ConfigError, which names `path`, if it is not an
/// array of images, or of another kind than the options say.
PixelLayout layout_of_images(const std::string& path, const values::NumpyArray& images,
                             const Options& options);

/// Throws ConfigError: the file has a problem that the user has to solve.
[[noreturn]] void refuse_arrays(const std::string& path, const std::string& problem);

/// The header of a .npy file, with `shape` as "2, 3" or "2,".
std::string npy_header(std::string_view type, const std::string& shape);
inline constexpr std::size_t kNpyHeaderBytes = 128;

class ImageArrayFormat : public RecordFormat {
 public:
  /// `layout` is that of the first shard; the others must have the same.
  ImageArrayFormat(PixelLayout layout, Options options)
      : layout_(layout), options_(std::move(options)) {}

  SampleKind kind() const noexcept final { return SampleKind::pixels; }
  void index(const MappedFile& shard, const AddRecord& add) const final;
  void open(Sample& sample) const final;

 private:
  /// Throws ConfigError. May run on several shards at a time.
  virtual ImageArrays find(const MappedFile& shard) const = 0;

  const PixelLayout layout_;
  const Options options_;
};

}  // namespace penstock::datasets
