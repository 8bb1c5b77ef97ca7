// SPDX-License-Identifier: Apache-2.0
// Messages of Penstock's own format: take one apart as what it is, a batch to its last byte.
//
// The input's first byte is the number of frames less one (bits 0 to 2), and whether the last one
// is the shared memory of a lease instead (bit 3). Then come the frames' lengths as u16; the last
// frame takes what is left.
#include <algorithm>
#include <cstring>
#include <optional>

#include "feeders/remote/wire/framed_texts.h"
#include "tests/fuzz/copy_batch.h"
#include "tests/support/framed_messages.h"

namespace penstock::fuzz {
namespace {

struct FramedInput {
  std::vector<std::span<const std::byte>> frames;
  std::optional<std::span<const std::byte>> shared;
};

FramedInput divide_into_frames(std::span<const std::byte> bytes) {
  FramedInput input;
  if (bytes.empty()) return input;
  const unsigned word = std::to_integer<unsigned>(bytes[0]);
  const std::size_t others = word & 7;
  if (bytes.size() < 1 + 2 * others) return input;
  std::span<const std::byte> rest = bytes.subspan(1 + 2 * others);
  for (std::size_t i = 0; i < others; ++i) {
    std::uint16_t length = 0;
    std::memcpy(&length, &bytes[1 + 2 * i], 2);
    input.frames.push_back(rest.first(std::min<std::size_t>(length, rest.size())));
    rest = rest.subspan(input.frames.back().size());
  }
  if ((word & 8) != 0) {
    input.shared = rest;
  } else {
    input.frames.push_back(rest);
  }
  return input;
}

void use_batch(const remote::FramedMessage& message) {
  if (message.header.encoding == remote::FramedEncoding::pixels) {
    copy_batch_checked(remote::framed_pixels(message, kSpec));
    return;
  }
  if (message.header.encoding == remote::FramedEncoding::arrays) {
    BatchSpec arrays = kSpec;
    arrays.opaque = true;
    const remote::WireBatch batch = remote::framed_pixels(message, arrays);
    read_all(batch.pixels);
    ensure(batch.samples > 0 && batch.pixels.size() <= arrays.pixel_bytes(), "too large a batch");
    return;
  }
  const remote::FramedImages images(message, kSpec);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    read_all(images.file(i));
    bytes += images.file(i).size();
    ensure(images.label(i) >= 0 && images.label(i) < kSpec.classes, "a label out of range");
  }
  ensure(images.size() == message.header.images && bytes == message.payload[1].size(),
         "files that do not add up");
}

}  // namespace

std::size_t framed(std::span<const std::byte> bytes) {
  const FramedInput input = divide_into_frames(bytes);
  const remote::FramedMessage message = remote::parse_framed(input.frames);
  switch (message.header.kind) {
    case remote::FramedKind::batch:
      if (message.is_shared() && input.shared) {
        const auto frames = remote::divide_framed_lease(message.header, *input.shared);
        use_batch({message.header, frames});
      } else {
        use_batch(message);
      }
      break;
    case remote::FramedKind::hello: {
      const remote::FramedHello hello = remote::parse_framed_hello(message);
      const FrameList again = framed_message(header_of(remote::FramedKind::hello),
                                             {bytes_of_text(remote::write_framed_hello(hello))});
      ensure(remote::parse_framed_hello(remote::parse_framed(views_of(again))) == hello,
             "a hello that is another once written");
      break;
    }
    case remote::FramedKind::end:
      break;
    case remote::FramedKind::welcome:
      static_cast<void>(remote::parse_framed_welcome(message));
      break;
    case remote::FramedKind::credit:
      static_cast<void>(remote::framed_credit_leases(message));
      break;
    case remote::FramedKind::refusal:
      static_cast<void>(remote::parse_framed_refusal(message));
  }
  return 1;
}

}  // namespace penstock::fuzz
