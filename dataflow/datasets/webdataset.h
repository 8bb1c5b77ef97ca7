// SPDX-License-Identifier: Apache-2.0
// Reads the samples of a WebDataset shard: consecutive files of a tar with a common key. The key is
// the path up to the first dot after the last slash; the rest is the file's kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/datasets/shard_stream.h"
#include "dataflow/datasets/tar.h"

namespace penstock::datasets {

struct WebDatasetRules {
  std::vector<std::string> images;  ///< kinds of file, in lower case; the first one present is used
  std::string label;                ///< kind of file; empty: all labels are 0
  std::string json_key;  ///< if the label file is JSON: the key of the number in its object
};

struct WebDatasetSample {
  std::uint64_t begin = 0, end = 0;  ///< range of its headers and files in the stream
  std::uint64_t image_at = 0, image_bytes = 0;
  std::int32_t label = -1;
  std::string problem;   ///< empty: the sample has an image and a label
  std::string kinds;     ///< of its files, for messages: "jpg, cls"
  bool is_last = false;  ///< with `problem`: the tar is damaged, and its rest is lost
};

class WebDatasetReader {
 public:
  /// `stream` and `rules` must outlive this object; `max_bytes` is TarReader's.
  WebDatasetReader(ByteStream& stream, const WebDatasetRules& rules,
                   std::uint64_t max_bytes = ~std::uint64_t{0})
      : tar_(stream, max_bytes), rules_(rules) {}

  /// Reads the next sample, whole or damaged. Skips files that belong to no sample (those without a
  /// kind, and those below names such as __meta__), and samples that have neither an image nor a
  /// label. `image` gets the image's bytes, unless it is null. False: there are no more. No input
  /// makes it throw.
  bool next(WebDatasetSample& sample, std::vector<std::byte>* image = nullptr);

  /// The kinds of the first skipped sample; empty if none was skipped.
  const std::string& passed_over() const noexcept { return passed_over_; }

 private:
  bool next_group(WebDatasetSample& sample);
  bool advance();
  void take(WebDatasetSample& sample);
  void read_label(WebDatasetSample& sample);
  void judge(WebDatasetSample& sample) const;

  TarReader tar_;
  const WebDatasetRules& rules_;
  std::vector<std::byte>* image_ = nullptr;  // the argument of next()
  TarMember member_;                         // if has_member_: a member that is in no sample yet
  bool has_member_ = false, ended_ = false;
  std::string failure_;  // the tar's problem after the last sample
  std::string passed_over_;
  std::size_t image_rank_ = 0;  // rank of the group's image among the kinds
  bool has_label_ = false;
};

/// A file's key, and its kind in lower case. Both are empty if it is not part of a sample.
struct WebDatasetName {
  std::string_view key;
  std::string kind;
};
WebDatasetName split_webdataset_name(std::string_view path);

}  // namespace penstock::datasets
