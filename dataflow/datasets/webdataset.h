// SPDX-License-Identifier: Apache-2.0
// The samples of a WebDataset shard: files of a tar that follow each other and have a key in
// common. The key is the path up to the first dot behind the last slash; what follows is the file's
// kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/packed/byte_stream.h"
#include "dataflow/packed/tar.h"

namespace penstock {

struct WebDatasetRules {
  std::vector<std::string> images;  ///< kinds of file, in lower case; the first one there is taken
  std::string label;                ///< kind of file; empty: all labels are 0
  std::string json_key;  ///< where the label is a file of JSON: of the number in its object
};

struct WebDatasetSample {
  std::uint64_t begin = 0, end = 0;  ///< of its headers and files, in the stream
  std::uint64_t image_at = 0, image_bytes = 0;
  std::int32_t label = -1;
  std::string problem;   ///< empty: it has an image and a label
  std::string kinds;     ///< of its files, for messages: "jpg, cls"
  bool is_last = false;  ///< with `problem`: the tar is damaged, and the rest of it is lost
};

class WebDatasetReader {
 public:
  /// `stream` and `rules` live longer than this; `max_bytes` is TarReader's.
  WebDatasetReader(ByteStream& stream, const WebDatasetRules& rules,
                   std::uint64_t max_bytes = ~std::uint64_t{0})
      : tar_(stream, max_bytes), rules_(rules) {}

  /// The next sample, whole or not; files that are no part of any sample are passed over (those
  /// without a kind, and those below names such as __meta__), and so are samples that have neither
  /// an image nor a label. `image` gets the image's bytes, unless it is null. False: there are no
  /// more. Throws nothing for any bytes.
  bool next(WebDatasetSample& sample, std::vector<std::byte>* image = nullptr);

  /// The kinds of the first sample that was passed over; empty: none was.
  const std::string& passed_over() const noexcept { return passed_over_; }

 private:
  bool next_group(WebDatasetSample& sample);
  bool advance();
  void take(WebDatasetSample& sample);
  void read_label(WebDatasetSample& sample);
  void judge(WebDatasetSample& sample) const;

  TarReader tar_;
  const WebDatasetRules& rules_;
  std::vector<std::byte>* image_ = nullptr;  // of the caller of next()
  TarMember member_;                         // that no sample has yet, where has_member_
  bool has_member_ = false, ended_ = false;
  std::string failure_;  // of the tar behind the sample that was given last
  std::string passed_over_;
  std::size_t image_rank_ = 0;  // of the group's image among the kinds
  bool has_label_ = false;
};

/// A file's key and kind, in lower case. Both empty: it is no part of a sample.
struct WebDatasetName {
  std::string_view key;
  std::string kind;
};
WebDatasetName split_webdataset_name(std::string_view path);

}  // namespace penstock
