// SPDX-License-Identifier: Apache-2.0
// Messages in Penstock's own format, made by Penstock's writers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "feeders/remote/wire/framed.h"
#include "tests/support/text_bytes.h"

namespace penstock {

using FrameBytes = std::vector<std::byte>;
using FrameList = std::vector<FrameBytes>;

template <typename Number>
FrameBytes bytes_of_list(std::span<const Number> numbers) {
  const auto bytes = std::as_bytes(numbers);
  return {bytes.begin(), bytes.end()};
}

inline std::vector<std::span<const std::byte>> views_of(const FrameList& frames) {
  return {frames.begin(), frames.end()};
}

/// The header, followed by these frames.
inline FrameList framed_message(const remote::FramedHeader& header, FrameList payload,
                                bool with_checksum = false) {
  const auto first = remote::make_framed_header(header, views_of(payload), with_checksum);
  payload.insert(payload.begin(), FrameBytes(first.begin(), first.end()));
  return payload;
}

/// The header of a batch of pixels of that spec.
inline remote::FramedHeader pixels_header(const BatchSpec& spec, std::uint64_t producer = 7,
                                          std::uint64_t sequence = 0) {
  return {.kind = remote::FramedKind::batch,
          .encoding = remote::FramedEncoding::pixels,
          .producer = producer,
          .sequence = sequence,
          .images_before = sequence * static_cast<std::uint64_t>(spec.images),
          .images = static_cast<std::uint32_t>(spec.images),
          .height = static_cast<std::uint32_t>(spec.image.height),
          .width = static_cast<std::uint32_t>(spec.image.width),
          .channels = static_cast<std::uint32_t>(spec.image.channels)};
}

inline remote::FramedHeader jpeg_header(std::uint32_t images, std::uint64_t producer = 7,
                                        std::uint64_t sequence = 0) {
  return {.kind = remote::FramedKind::batch,
          .encoding = remote::FramedEncoding::jpeg,
          .producer = producer,
          .sequence = sequence,
          .images = images};
}

inline remote::FramedHeader header_of(remote::FramedKind kind, std::uint64_t producer = 7) {
  return {.kind = kind,
          .encoding = kind == remote::FramedKind::hello ? remote::FramedEncoding::pixels
                                                        : remote::FramedEncoding::none,
          .producer = producer};
}

/// The three frames of a batch of JPEG files. The files are never decoded.
inline FrameList jpeg_payload(const std::vector<std::string_view>& files,
                              const std::vector<std::int32_t>& labels) {
  std::vector<std::uint32_t> lengths;
  FrameBytes all;
  for (const std::string_view file : files) {
    lengths.push_back(static_cast<std::uint32_t>(file.size()));
    const FrameBytes bytes = bytes_of_text(file);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return {bytes_of_list(std::span<const std::uint32_t>(lengths)), all,
          bytes_of_list(std::span<const std::int32_t>(labels))};
}

/// The frame that refers to a payload in shared memory.
inline FrameBytes lease_frame(const remote::FramedLease& lease) {
  FrameBytes frame(remote::kFramedLeaseBytes);
  remote::write_framed_lease(std::span<std::byte, remote::kFramedLeaseBytes>(frame), lease);
  return frame;
}

/// Frames as stored in shared memory, each at the next multiple of 64.
inline FrameBytes shared_bytes(const FrameList& frames) {
  FrameBytes bytes;
  for (const FrameBytes& frame : frames) {
    bytes.resize((bytes.size() + 63) / 64 * 64);
    bytes.insert(bytes.end(), frame.begin(), frame.end());
  }
  return bytes;
}

}  // namespace penstock
