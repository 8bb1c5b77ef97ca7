// SPDX-License-Identifier: Apache-2.0
// Reads and writes messages of Penstock's own format (feeders/remote/framed_format.md). Header,
// frames and the run's shape are checked against each other before anything is used.
//
// If another process may still write to the bytes, labels are copied before they are checked: see
// framed_pixels().
//
// Stateless functions, callable from any thread. All throw DataError, which says what was found and
// what was expected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/batch.h"
#include "feeders/remote/wire/framed_header.h"
#include "feeders/remote/wire/wire_batch.h"

namespace penstock::remote {

/// Most frames after the header: those of a batch of JPEG files.
inline constexpr std::size_t kMaxFramedPayload = 3;
/// Most images in a batch of JPEG files.
inline constexpr std::uint32_t kMaxFramedImages = 65'536;

/// A message whose header fits its frames. Valid while the frames are.
struct FramedMessage {
  FramedHeader header;
  MessageFrames payload;  ///< the frames after the header

  /// Whether the payload is a lease; then divide_framed_lease() finds the frames.
  bool is_shared() const noexcept { return (header.flags & kFramedShared) != 0; }
};

/// Checks all that does not depend on the run: version, kind, encoding, flags, number and sizes of
/// frames, and the checksum if there is one (not that of shared memory).
FramedMessage parse_framed(MessageFrames frames);

/// Checks that a batch or hello header fits the run: pixels of its shape, JPEG files, or arrays.
void check_framed_shape(const FramedHeader& header, const BatchSpec& spec);

/// Returns the batch of pixels in a message, with checked labels, or the bytes of its arrays if the
/// run's batches are opaque. For shared memory, copy the
/// labels first and pass the frame of the copy.
WireBatch framed_pixels(const FramedMessage& message, const BatchSpec& spec);

/// The files and labels of a batch of JPEG files. Files are views of the frames.
class FramedImages {
 public:
  /// Checks that labels are classes of the run.
  FramedImages(const FramedMessage& message, const BatchSpec& spec);

  std::size_t size() const noexcept { return labels_.size(); }
  std::span<const std::byte> file(std::size_t index) const noexcept {
    const std::uint64_t first = index == 0 ? 0 : ends_[index - 1];
    return files_.subspan(first, ends_[index] - first);
  }
  std::int32_t label(std::size_t index) const noexcept { return labels_[index]; }

 private:
  std::vector<std::uint64_t> ends_;  // end of each file in files_
  std::span<const std::byte> files_;
  std::vector<std::int32_t> labels_;
};

/// The place of a batch in a pool of shared memory.
struct FramedLease {
  std::uint64_t lease = 0;   ///< the producer's number for it
  std::uint64_t offset = 0;  ///< in the pool, a multiple of 4,096
  std::uint64_t bytes = 0;
  bool operator==(const FramedLease&) const = default;
};

inline constexpr std::size_t kFramedLeaseBytes = 32;

/// Reads the lease of a message for which is_shared() holds. The caller must check that the pool
/// contains those bytes.
FramedLease framed_lease(const FramedMessage& message);
void write_framed_lease(std::span<std::byte, kFramedLeaseBytes> to,
                        const FramedLease& lease) noexcept;

/// Finds the pixels and the labels of a batch in the bytes of its lease, each at the next multiple
/// of 64, and checks their sizes and the checksum. {header, frames} can then be used like any other
/// message.
std::array<std::span<const std::byte>, 2> divide_framed_lease(const FramedHeader& header,
                                                              std::span<const std::byte> bytes);

/// The numbers of leases that a credit message returns.
std::vector<std::uint64_t> framed_credit_leases(const FramedMessage& message);

/// Returns the first frame of a message with this payload. Sets payload_bytes and, with
/// `with_checksum`, the checksum and its flag.
std::array<std::byte, kFramedHeaderBytes> make_framed_header(FramedHeader header,
                                                             MessageFrames payload,
                                                             bool with_checksum = false) noexcept;

/// The type of pixels on the wire. Pixels have no other types.
FramedPixel framed_pixel_of(DType type) noexcept;

/// Such as "batch" or "hello"; "?" if unknown.
std::string_view to_string(FramedKind kind) noexcept;
/// "pixels", "JPEG files" or "arrays"; "?" if unknown.
std::string_view to_string(FramedEncoding encoding) noexcept;

}  // namespace penstock::remote
