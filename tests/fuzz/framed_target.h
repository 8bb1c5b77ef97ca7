// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the frames of a message of Penstock's own
// format: take it apart as what it is, batches to their last byte. Throws std::logic_error where an
// answer contradicts itself.
//
// The input's first byte says how many frames there are, less one (bits 0 to 2), and whether the
// last one is the shared memory of a lease instead (bit 3). Then u16 each: how long the frames are;
// the last one takes what is left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "tests/fuzz/zmq_op_target.h"
#include "tests/support/framed_messages.h"

namespace penstock {

struct FramedInput {
  std::vector<std::span<const std::byte>> frames;
  std::optional<std::span<const std::byte>> shared;
};

inline FramedInput divide_framed_input(std::span<const std::byte> bytes) {
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

inline std::vector<std::byte> framed_input(const FrameList& frames, const FrameBytes* shared) {
  const std::size_t others = frames.size() - (shared == nullptr ? 1 : 0);
  std::vector<std::byte> input = {static_cast<std::byte>(others | (shared == nullptr ? 0U : 8U))};
  for (std::size_t i = 0; i < others; ++i) {
    input.push_back(static_cast<std::byte>(frames[i].size() & 0xff));
    input.push_back(static_cast<std::byte>(frames[i].size() >> 8));
  }
  for (const FrameBytes& frame : frames) input.insert(input.end(), frame.begin(), frame.end());
  if (shared != nullptr) input.insert(input.end(), shared->begin(), shared->end());
  return input;
}

inline void use_framed_batch(const FramedMessage& message) {
  if (message.header.encoding == FramedEncoding::pixels) {
    copy_fuzzed_batch(framed_pixels(message, kFuzzSpec));
    return;
  }
  const FramedImages images(message, kFuzzSpec);
  std::size_t bytes = 0;
  volatile unsigned sink = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    for (const std::byte value : images.file(i)) sink = sink + std::to_integer<unsigned>(value);
    bytes += images.file(i).size();
    if (images.label(i) < 0 || images.label(i) >= kFuzzSpec.classes) {
      throw std::logic_error("a label out of range");
    }
  }
  if (images.size() != message.header.images || bytes != message.payload[1].size()) {
    throw std::logic_error("files that do not add up");
  }
}

/// Whether the message was one of this format, and, if a batch, one of kFuzzSpec.
inline bool try_framed(std::span<const std::byte> bytes) {
  const FramedInput input = divide_framed_input(bytes);
  try {
    const FramedMessage message = parse_framed(input.frames);
    switch (message.header.kind) {
      case FramedKind::batch:
        if (message.is_shared() && input.shared) {
          const FramedShared shared = divide_framed_lease(message.header, *input.shared);
          use_framed_batch({message.header, std::span(shared.frames).first(shared.count)});
        } else {
          use_framed_batch(message);
        }
        break;
      case FramedKind::hello: {
        const FramedHello hello = parse_framed_hello(message);
        const FrameList again = framed_message(header_of(FramedKind::hello),
                                               {bytes_of_text(write_framed_hello(hello))});
        if (parse_framed_hello(parse_framed(views_of(again))) != hello) {
          throw std::logic_error("a hello that is another once written");
        }
        break;
      }
      case FramedKind::end:
        break;
      case FramedKind::welcome:
        static_cast<void>(parse_framed_welcome(message));
        break;
      case FramedKind::credit:
        static_cast<void>(framed_credit_leases(message));
        break;
      case FramedKind::refusal:
        static_cast<void>(parse_framed_refusal(message));
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// A message of each kind; batches of each encoding, with and without a checksum, and shared.
inline std::vector<std::vector<std::byte>> framed_corpus() {
  const FrameList pixels = {FrameBytes(12, std::byte{9}),
                            bytes_of_list(std::span<const std::int32_t>({{3, 7}}))};
  const FrameList jpeg = jpeg_payload({"one", "three"}, {1, 2});
  const FramedHello hello{"loader", "host7", 4711, "0f0f-11", "@pool"};
  const FramedWelcome welcome{2, 2, 3, 1, 10, "0f0f-11"};
  const std::uint64_t leases[] = {1, 2};
  std::vector<FrameList> messages = {
      framed_message(pixels_header(kFuzzSpec), pixels),
      framed_message(pixels_header(kFuzzSpec), pixels, true),
      framed_message(jpeg_header(2), jpeg),
      framed_message(header_of(FramedKind::hello), {bytes_of_text(write_framed_hello(hello))},
                     true),
      framed_message(header_of(FramedKind::end), {}),
      framed_message(header_of(FramedKind::welcome),
                     {bytes_of_text(write_framed_welcome(welcome))}),
      framed_message(header_of(FramedKind::credit),
                     {bytes_of_list(std::span<const std::uint64_t>(leases))}),
      framed_message(header_of(FramedKind::refusal),
                     {bytes_of_text(write_framed_refusal("no room"))}),
  };
  std::vector<std::vector<std::byte>> corpus;
  for (const FrameList& message : messages) corpus.push_back(framed_input(message, nullptr));
  for (const bool of_jpeg : {false, true}) {
    FramedHeader header = of_jpeg ? jpeg_header(2) : pixels_header(kFuzzSpec);
    header.flags = kFramedShared;
    const FrameBytes shared = shared_bytes(of_jpeg ? jpeg : pixels);
    corpus.push_back(framed_input(
        framed_message(header, {lease_frame({.lease = 1, .bytes = shared.size()})}), &shared));
  }
  return corpus;
}

}  // namespace penstock
