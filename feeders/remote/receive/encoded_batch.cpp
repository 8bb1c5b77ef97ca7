// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/encoded_batch.h"

#include <bit>
#include <limits>
#include <string>

#include "dataflow/error.h"
#include "dataflow/values/crc32c.h"

namespace penstock::remote {

static_assert(std::endian::native == std::endian::little,
              "numbers are sent in native byte order, which must be little-endian");

void EncodedBatch::begin(std::size_t images) {
  lengths_.clear();
  files_.clear();
  labels_.clear();
  lengths_.reserve(images);
  labels_.reserve(images);
}

void EncodedBatch::add(std::span<const std::byte> content, std::int32_t label,
                       std::string_view file) {
  if (content.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw DataError("an image of '" + std::string(file) + "' has " +
                    std::to_string(content.size()) +
                    " bytes; a message takes less than 2^32; take it out of the data");
  }
  files_.insert(files_.end(), content.begin(), content.end());
  lengths_.push_back(static_cast<std::uint32_t>(content.size()));
  labels_.push_back(label);
}

std::uint64_t EncodedBatch::payload_bytes() const noexcept {
  return files_.size() + lengths_.size() * sizeof(lengths_[0]) +
         labels_.size() * sizeof(labels_[0]);
}

std::uint32_t EncodedBatch::checksum() const noexcept {
  const std::uint32_t sum =
      values::crc32c(files_, values::crc32c(std::as_bytes(std::span(lengths_))));
  return values::crc32c(std::as_bytes(std::span(labels_)), sum);
}

void EncodedBatch::write_header(FramedHeader header) noexcept {
  header.images = static_cast<std::uint32_t>(images());
  header.payload_bytes = payload_bytes();
  write_framed_header(header_, header);
}

std::array<std::span<std::byte>, EncodedBatch::kFrames> EncodedBatch::frames() noexcept {
  return {std::span<std::byte>(header_), std::as_writable_bytes(std::span(lengths_)),
          std::span<std::byte>(files_), std::as_writable_bytes(std::span(labels_))};
}

}  // namespace penstock::remote
