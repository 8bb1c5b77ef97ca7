// SPDX-License-Identifier: Apache-2.0
// Messages of Penstock's own format (feeders/framed_format.md): frames in, views out. What a header
// says is checked against the frames, and both against what the run wants, before anything is used.
// Texts of hellos, welcomes and refusals are framed_text.h's.
//
// Where the bytes lie in memory that somebody else may still write to, sizes and labels are copied
// before they are checked: FramedImages does so; of pixels in shared memory see framed_pixels.
// Stateless functions, which may run on any thread; all throw DataError with what was found and
// what was expected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/batch.h"
#include "dataflow/wire/framed_header.h"
#include "dataflow/wire/wire_batch.h"

namespace penstock {

/// Frames behind the header, at most: those of a batch of JPEG files.
inline constexpr std::size_t kMaxFramedPayload = 3;
/// Images in a batch of JPEG files, at most.
inline constexpr std::uint32_t kMaxFramedImages = 65'536;

/// A message whose header fits its frames: valid while they are.
struct FramedMessage {
  FramedHeader header;
  MessageFrames payload;  ///< the frames behind the header

  /// The payload is a lease, and what it stands for is divide_framed_lease's.
  bool is_shared() const noexcept { return (header.flags & kFramedShared) != 0; }
};

/// Checks what needs no knowledge of the run: version, kind, encoding, flags, the number of frames
/// and their sizes, and the checksum where there is one (that of shared memory excepted).
FramedMessage parse_framed(MessageFrames frames);

/// Whether batches of such a header, a batch's or a hello's, are those that the run wants: pixels
/// of its shape, or JPEG files.
void check_framed_shape(const FramedHeader& header, const BatchSpec& spec);

/// The batch of pixels in a message, labels checked. Copy the labels of shared memory first, and
/// hand in their copy's frame.
WireBatch framed_pixels(const FramedMessage& message, const BatchSpec& spec);

/// The files and labels of a batch of JPEG files. Files are views of the frames.
class FramedImages {
 public:
  /// Labels are checked to be of the run's classes.
  FramedImages(const FramedMessage& message, const BatchSpec& spec);

  std::size_t size() const noexcept { return labels_.size(); }
  std::span<const std::byte> file(std::size_t index) const noexcept {
    const std::uint64_t first = index == 0 ? 0 : ends_[index - 1];
    return files_.subspan(first, ends_[index] - first);
  }
  std::int32_t label(std::size_t index) const noexcept { return labels_[index]; }

 private:
  std::vector<std::uint64_t> ends_;  // of each file in files_
  std::span<const std::byte> files_;
  std::vector<std::int32_t> labels_;
};

/// Where a batch lies in a pool of shared memory.
struct FramedLease {
  std::uint64_t lease = 0;   ///< the producer's number for it
  std::uint64_t offset = 0;  ///< in the pool, a multiple of 4,096
  std::uint64_t bytes = 0;
  bool operator==(const FramedLease&) const = default;
};

inline constexpr std::size_t kFramedLeaseBytes = 32;

/// Of a message that is_shared(). Whether the pool has those bytes is for who maps it to check.
FramedLease framed_lease(const FramedMessage& message);
void write_framed_lease(std::span<std::byte, kFramedLeaseBytes> to,
                        const FramedLease& lease) noexcept;

/// The frames of a batch that lies in shared memory, and the bytes of what would have been frames.
struct FramedShared {
  std::array<std::span<const std::byte>, kMaxFramedPayload> frames;
  std::size_t count = 0;
};

/// Finds the frames in the bytes of a lease, each at the next multiple of 64, and checks their sum.
/// The message {header, {frames, count}} is one like others then.
FramedShared divide_framed_lease(const FramedHeader& header, std::span<const std::byte> bytes);

/// The numbers of leases that a credit gives back.
std::vector<std::uint64_t> framed_credit_leases(const FramedMessage& message);

/// The first frame of a message with these frames behind it: payload_bytes and, with
/// `with_checksum`, the checksum and its flag are filled in.
std::array<std::byte, kFramedHeaderBytes> make_framed_header(FramedHeader header,
                                                             MessageFrames payload,
                                                             bool with_checksum = false) noexcept;

/// "batch", "hello"; "?" for numbers that are no kind.
std::string_view to_string(FramedKind kind) noexcept;
/// "pixels", "JPEG files"; "?" for numbers that are no encoding.
std::string_view to_string(FramedEncoding encoding) noexcept;

}  // namespace penstock
