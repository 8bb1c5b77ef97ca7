// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/wire/framed.h"

#include <fmt/format.h>

#include <cstring>
#include <initializer_list>
#include <optional>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/values/crc32c.h"
#include "dataflow/values/value_at.h"
#include "feeders/pixel_options.h"

namespace penstock::remote {
namespace {

/// In shared memory each frame begins at a multiple of this.
constexpr std::uint64_t kSharedAlignment = 64;
constexpr std::uint64_t kPoolAlignment = 4096;
constexpr std::uint16_t kKnownFlags = kFramedChecksum | kFramedShared;

using values::value_at;
using Bytes = std::span<const std::byte>;

template <typename... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> text, Values&&... values) {
  throw DataError("framed message: {}", fmt::format(text, std::forward<Values>(values)...));
}

std::uint64_t total_bytes(MessageFrames frames) noexcept {
  std::uint64_t bytes = 0;
  for (const Bytes& frame : frames) bytes += frame.size();
  return bytes;
}

std::uint32_t checksum_of(MessageFrames frames) noexcept {
  std::uint32_t sum = 0;
  for (const Bytes& frame : frames) sum = values::crc32c(frame, sum);
  return sum;
}

FramedHeader checked_header(MessageFrames frames) {
  if (frames.empty() || !begins_as_framed(frames[0])) {
    refuse("its first frame does not begin with PENSTOCK");
  }
  const std::uint16_t version = framed_version(frames[0]);
  if (version != 0 && version != kFramedVersion) {
    refuse(
        "it is of version {} of the format; this is a reader of {}: take a producer and a consumer "
        "of one release",
        version, kFramedVersion);
  }
  const std::optional<FramedHeader> header = read_framed_header(frames[0]);
  if (header) return *header;
  refuse("{}", frames[0].size() == kFramedHeaderBytes
                   ? "version or reserved bytes of its header are not as version 1 has them"
                   : fmt::format("its header has {} bytes; expected {}", frames[0].size(),
                                 kFramedHeaderBytes));
}

constexpr std::pair<FramedPixel, DType> kPixelTypes[] = {{FramedPixel::u8, DType::u8},
                                                         {FramedPixel::f32, DType::f32},
                                                         {FramedPixel::f16, DType::f16},
                                                         {FramedPixel::bf16, DType::bf16}};

constexpr std::pair<FramedKind, std::string_view> kKindNames[] = {
    {FramedKind::batch, "batch"},   {FramedKind::hello, "hello"},
    {FramedKind::end, "end"},       {FramedKind::welcome, "welcome"},
    {FramedKind::credit, "credit"}, {FramedKind::refusal, "refusal"}};
constexpr std::pair<FramedEncoding, std::string_view> kEncodingNames[] = {
    {FramedEncoding::none, "nothing"},
    {FramedEncoding::pixels, "pixels"},
    {FramedEncoding::jpeg, "JPEG files"},
    {FramedEncoding::arrays, "arrays"}};

template <typename Names, typename Value>
std::string_view name_in(const Names& names, Value value) noexcept {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "?";
}

/// Empty: unknown.
std::optional<DType> dtype_of(FramedPixel pixel) noexcept {
  for (const auto& [known, type] : kPixelTypes) {
    if (known == pixel) return type;
  }
  return std::nullopt;
}

/// Checks the fields that do not depend on other frames.
void check_fields(const FramedHeader& header) {
  const bool batch = header.kind == FramedKind::batch;
  if (to_string(header.kind) == "?") {
    refuse("its kind is {}; expected 1 to 3 of a producer, 16 to 18 of a consumer",
           static_cast<unsigned>(header.kind));
  }
  const bool described = batch || header.kind == FramedKind::hello;
  const bool pixels = header.encoding == FramedEncoding::pixels;
  const bool jpeg = header.encoding == FramedEncoding::jpeg;
  const bool arrays = header.encoding == FramedEncoding::arrays;
  if (described ? !pixels && !jpeg && !arrays : header.encoding != FramedEncoding::none) {
    refuse("the encoding of its kind, {}, is {}; expected {}", to_string(header.kind),
           static_cast<unsigned>(header.encoding),
           described ? "1, pixels, 2, JPEG files, or 3, arrays" : "0");
  }
  if ((header.flags & ~kKnownFlags) != 0 || (!batch && (header.flags & kFramedShared) != 0)) {
    refuse("the flags of its kind, {}, are {}; expected {}", to_string(header.kind), header.flags,
           batch ? "0 to 3" : "0 or 1");
  }
  if (header.producer == 0) refuse("its producer's number is 0; expected a random one");
  if ((header.flags & kFramedChecksum) == 0 && header.checksum != 0) {
    refuse("it has a checksum, but flag 1 is not set");
  }
  const bool plain = header.pixel == FramedPixel::u8 && header.planar == 0;
  if (!pixels || !described ? !plain : !dtype_of(header.pixel) || header.planar > 1) {
    refuse("the type and layout of its pixels are {} and {}; expected {}",
           static_cast<unsigned>(header.pixel), header.planar,
           pixels && described ? "0 to 3, and 0 or 1" : "0 and 0");
  }
  if (!batch) return;
  if (header.images == 0 || (jpeg && header.images > kMaxFramedImages) ||
      header.images > INT32_MAX) {
    refuse("it has {} images; expected {}", header.images,
           jpeg ? fmt::format("1 to {}", kMaxFramedImages) : "at least one");
  }
  if (!pixels && (header.height != 0 || header.width != 0 || header.channels != 0)) {
    refuse("height, width and channels of a batch of {} are {}, {} and {}; expected 0",
           to_string(header.encoding), header.height, header.width, header.channels);
  }
}

/// Checks the number of frames after the header.
void check_count(const FramedHeader& header, std::size_t count) {
  std::size_t least = 1, most = 1;
  std::string_view expected = "one";
  if (header.kind == FramedKind::batch) {
    if ((header.flags & kFramedShared) != 0) {
      expected = "one, the lease";
    } else if (header.encoding == FramedEncoding::pixels) {
      least = most = 2;
      expected = "two: pixels and labels";
    } else if (header.encoding == FramedEncoding::arrays) {
      expected = "one: the arrays";
    } else {
      least = most = 3;
      expected = "three: lengths, files and labels";
    }
  } else if (header.kind == FramedKind::end || header.kind == FramedKind::credit) {
    least = 0;
    most = header.kind == FramedKind::credit ? 1 : 0;
    expected = most == 0 ? "none" : "one at most";
  }
  if (count >= least && count <= most) return;
  refuse("{} frames follow the header of its kind, {}; expected {}", count, to_string(header.kind),
         expected);
}

void check_size(std::string_view name, Bytes frame, std::optional<std::uint64_t> expected) {
  if (expected == frame.size()) return;
  refuse("{} have {} bytes; expected {}, by the header", name, frame.size(),
         expected ? std::to_string(*expected) : "less than 2^64");
}

/// Empty: they need more than 64 bits.
std::optional<std::uint64_t> pixel_bytes(const FramedHeader& header) noexcept {
  const std::uint64_t element = size_of(dtype_of(header.pixel).value_or(DType::u8));
  std::uint64_t bytes = 1;
  for (const std::uint64_t factor : std::initializer_list<std::uint64_t>{
           header.images, header.height, header.width, header.channels, element}) {
    if (__builtin_mul_overflow(bytes, factor, &bytes)) return std::nullopt;
  }
  return bytes;
}

/// Checks that the frames of a batch have the sizes that its header says.
void check_batch_sizes(const FramedHeader& header, MessageFrames payload) {
  if (header.encoding == FramedEncoding::arrays) return;
  const std::uint64_t numbers = 4 * std::uint64_t{header.images};
  if (header.encoding == FramedEncoding::pixels) {
    check_size("the pixels", payload[0], pixel_bytes(header));
  } else {
    check_size("the lengths", payload[0], numbers);
  }
  check_size("the labels", payload.back(), numbers);
}

void check_text_size(const FramedHeader& header, MessageFrames payload) {
  const bool text = header.kind == FramedKind::hello || header.kind == FramedKind::welcome ||
                    header.kind == FramedKind::refusal;
  if (!text || payload[0].size() <= kMaxFramedText) return;
  refuse("the text of a {} has {} bytes; expected at most {}", to_string(header.kind),
         payload[0].size(), kMaxFramedText);
}

void check_checksum(const FramedHeader& header, MessageFrames frames) {
  if ((header.flags & kFramedChecksum) == 0) return;
  const std::uint32_t found = checksum_of(frames);
  if (found == header.checksum) return;
  refuse("the checksum of batch {} is {}, its header says {}: it was changed in transit",
         header.sequence, found, header.checksum);
}

/// Checks that the message contains the frames of a batch, and their sizes.
void require_frames(const FramedMessage& message, FramedEncoding encoding) {
  const FramedHeader& header = message.header;
  if (header.kind != FramedKind::batch) {
    refuse("it is of kind {}; expected a batch", to_string(header.kind));
  }
  if (header.encoding != encoding) {
    refuse("a batch of {}; expected {}", to_string(header.encoding), to_string(encoding));
  }
  if (message.is_shared() && message.payload.size() == 1) {
    refuse("its batch is in shared memory; expected it in the message");
  }
}

WireBatch framed_arrays(const FramedMessage& message, const BatchSpec& spec) {
  check_framed_shape(message.header, spec);
  require_frames(message, FramedEncoding::arrays);
  const Bytes bytes = message.payload[0];
  if (bytes.size() > spec.pixel_bytes()) {
    throw MisfitError(
        "framed message: a batch of {} samples and {} bytes; expected at most {} bytes; a run with "
        "zmq-consume:batch={}x{}B takes it",
        message.header.images, bytes.size(), spec.pixel_bytes(), spec.images, 2 * bytes.size());
  }
  return {
      .pixels = bytes, .labels = {}, .samples = static_cast<std::int32_t>(message.header.images)};
}

}  // namespace

FramedMessage parse_framed(MessageFrames frames) {
  const FramedMessage message{checked_header(frames), frames.subspan(1)};
  const FramedHeader& header = message.header;
  check_fields(header);
  check_count(header, message.payload.size());
  const std::uint64_t bytes = total_bytes(message.payload);
  if (header.payload_bytes != bytes) {
    refuse("its header says that {} bytes follow; there are {}", header.payload_bytes, bytes);
  }
  if (message.is_shared()) {
    static_cast<void>(framed_lease(message));
    return message;
  }
  check_text_size(header, message.payload);
  if (header.kind == FramedKind::batch) check_batch_sizes(header, message.payload);
  check_checksum(header, message.payload);
  return message;
}

void check_framed_shape(const FramedHeader& header, const BatchSpec& spec) {
  const bool arrays = header.encoding == FramedEncoding::arrays;
  if (spec.opaque && !arrays) {
    throw MisfitError(
        "framed message: a batch of {}; this run takes arrays that are no images; leave "
        "out zmq-consume:batch=",
        to_string(header.encoding));
  }
  if (arrays && !spec.opaque) {
    throw MisfitError(
        "framed message: a batch of arrays that are no images; a run with "
        "zmq-consume:batch={}xBYTESB takes it, where BYTES are those of its largest batches",
        header.images);
  }
  if (header.encoding != FramedEncoding::pixels) return;
  const auto number = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };
  const std::optional<DType> type = dtype_of(header.pixel);
  const ImageShape& image = spec.image;
  const bool planar = header.planar != 0;
  if (header.images == number(spec.images) && header.height == number(image.height) &&
      header.width == number(image.width) && header.channels == number(image.channels) &&
      type == spec.pixel && planar == spec.planar) {
    return;
  }
  const std::int64_t images = header.images, height = header.height, width = header.width,
                     channels = header.channels;
  const std::array<std::int64_t, 4> shape = planar ? std::array{images, channels, height, width}
                                                   : std::array{images, height, width, channels};
  refuse_pixels(fmt::format("framed message: pixels are {}; expected {}",
                            describe_pixels(type, shape), describe_pixels(spec)),
                type, shape, spec);
}

WireBatch framed_pixels(const FramedMessage& message, const BatchSpec& spec) {
  if (spec.opaque) return framed_arrays(message, spec);
  check_framed_shape(message.header, spec);
  require_frames(message, FramedEncoding::pixels);
  const WireBatch batch{.pixels = message.payload[0], .labels = message.payload[1]};
  check_labels(batch, spec, "framed message");
  return batch;
}

FramedImages::FramedImages(const FramedMessage& message, const BatchSpec& spec) {
  require_frames(message, FramedEncoding::jpeg);
  const std::size_t count = message.header.images;
  std::vector<std::uint32_t> lengths(count);
  std::memcpy(lengths.data(), message.payload[0].data(), 4 * count);
  std::uint64_t end = 0;
  ends_.reserve(count);
  for (const std::uint32_t length : lengths) ends_.push_back(end += length);
  files_ = message.payload[1];
  if (end != files_.size()) {
    refuse("the lengths of its files add up to {} bytes; the files have {}", end, files_.size());
  }
  labels_.resize(count);
  std::memcpy(labels_.data(), message.payload[2].data(), 4 * count);
  BatchSpec own = spec;
  own.images = static_cast<std::int32_t>(count);
  check_labels({.pixels = {}, .labels = std::as_bytes(std::span(labels_))}, own, "framed message");
}

FramedLease framed_lease(const FramedMessage& message) {
  if (!message.is_shared() || message.payload.size() != 1) {
    refuse("its payload is not in shared memory");
  }
  const Bytes bytes = message.payload[0];
  if (bytes.size() != kFramedLeaseBytes) {
    refuse("its lease has {} bytes; expected {}", bytes.size(), kFramedLeaseBytes);
  }
  const FramedLease lease{value_at<std::uint64_t>(bytes, 0), value_at<std::uint64_t>(bytes, 8),
                          value_at<std::uint64_t>(bytes, 16)};
  if (lease.offset % kPoolAlignment != 0) {
    refuse("its lease begins at {} of the pool; expected a multiple of 4096", lease.offset);
  }
  if (value_at<std::uint64_t>(bytes, 24) != 0) refuse("reserved bytes of its lease are not 0");
  return lease;
}

void write_framed_lease(std::span<std::byte, kFramedLeaseBytes> to,
                        const FramedLease& lease) noexcept {
  const std::uint64_t words[] = {lease.lease, lease.offset, lease.bytes, 0};
  static_assert(sizeof(words) == kFramedLeaseBytes);
  std::memcpy(to.data(), words, sizeof(words));
}

std::array<Bytes, 2> divide_framed_lease(const FramedHeader& header, Bytes bytes) {
  if (header.encoding != FramedEncoding::pixels) {
    refuse("{} in shared memory; expected them in the message", to_string(header.encoding));
  }
  std::uint64_t at = 0;
  const auto take = [&](std::string_view name, std::optional<std::uint64_t> size) {
    if (!size || at > bytes.size() || *size > bytes.size() - at) {
      refuse("its lease has {} bytes, too few for {} of {} at {}", bytes.size(), name,
             size ? std::to_string(*size) : "2^64 and more", at);
    }
    const Bytes frame = bytes.subspan(at, *size);
    at = (at + *size + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    return frame;
  };
  const Bytes pixels = take("pixels", pixel_bytes(header));
  const std::array frames{pixels, take("labels", 4 * std::uint64_t{header.images})};
  check_checksum(header, frames);
  return frames;
}

std::vector<std::uint64_t> framed_credit_leases(const FramedMessage& message) {
  if (message.header.kind != FramedKind::credit) {
    refuse("it is of kind {}; expected a credit", to_string(message.header.kind));
  }
  if (message.payload.empty()) return {};
  const Bytes bytes = message.payload[0];
  if (bytes.size() % sizeof(std::uint64_t) != 0) {
    refuse("the leases of a credit have {} bytes; expected a multiple of 8", bytes.size());
  }
  std::vector<std::uint64_t> leases(bytes.size() / sizeof(std::uint64_t));
  if (!leases.empty()) std::memcpy(leases.data(), bytes.data(), bytes.size());
  return leases;
}

std::array<std::byte, kFramedHeaderBytes> make_framed_header(FramedHeader header,
                                                             MessageFrames payload,
                                                             bool with_checksum) noexcept {
  header.payload_bytes = total_bytes(payload);
  if (with_checksum) {
    header.flags |= kFramedChecksum;
    header.checksum = checksum_of(payload);
  }
  std::array<std::byte, kFramedHeaderBytes> bytes{};
  write_framed_header(bytes, header);
  return bytes;
}

FramedPixel framed_pixel_of(DType type) noexcept {
  for (const auto& [pixel, known] : kPixelTypes) {
    if (known == type) return pixel;
  }
  return FramedPixel::u8;
}

std::string_view to_string(FramedKind kind) noexcept { return name_in(kKindNames, kind); }

std::string_view to_string(FramedEncoding encoding) noexcept {
  return name_in(kEncodingNames, encoding);
}

}  // namespace penstock::remote
