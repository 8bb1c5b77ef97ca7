// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/wire/framed_header.h"

#include <bit>
#include <chrono>
#include <cstring>
#include <random>

namespace penstock::remote {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fields are stored in native byte order, which must be little-endian");

constexpr char kMagic[8] = {'P', 'E', 'N', 'S', 'T', 'O', 'C', 'K'};

constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kReservedAt = 78, kReservedBytes = 2;

/// Calls `field` with each field and its offset. Reading and writing share this list.
template <typename Header, typename Field>
void for_each_field(Header& header, Field field) {
  field(header.kind, 10);
  field(header.encoding, 12);
  field(header.flags, 14);
  field(header.producer, 16);
  field(header.sequence, 24);
  field(header.begun_ns, 32);
  field(header.ready_ns, 40);
  field(header.sent_ns, 48);
  field(header.images, 56);
  field(header.height, 60);
  field(header.width, 64);
  field(header.channels, 68);
  field(header.checksum, 72);
  field(header.pixel, 76);
  field(header.planar, 77);
  field(header.payload_bytes, 80);
  field(header.images_before, 88);
}

}  // namespace

std::int64_t wall_clock_ns() noexcept {
  return std::chrono::round<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::uint64_t draw_producer_number() {
  std::random_device device;
  std::uint64_t number = 0;
  while (number == 0) number = std::uint64_t{device()} << 32 | device();
  return number;
}

void write_framed_header(std::span<std::byte, kFramedHeaderBytes> to,
                         const FramedHeader& header) noexcept {
  std::memcpy(to.data(), kMagic, sizeof(kMagic));
  std::memcpy(&to[kVersionAt], &kFramedVersion, sizeof(kFramedVersion));
  std::memset(&to[kReservedAt], 0, kReservedBytes);
  for_each_field(header, [&](const auto& value, std::size_t at) {
    std::memcpy(&to[at], &value, sizeof(value));
  });
}

bool begins_as_framed(std::span<const std::byte> frame) noexcept {
  return frame.size() >= sizeof(kMagic) && std::memcmp(frame.data(), kMagic, sizeof(kMagic)) == 0;
}

std::uint16_t framed_version(std::span<const std::byte> frame) noexcept {
  std::uint16_t version = 0;
  if (frame.size() < kVersionAt + sizeof(version)) return version;
  std::memcpy(&version, &frame[kVersionAt], sizeof(version));
  return version;
}

std::optional<FramedHeader> read_framed_header(std::span<const std::byte> frame) noexcept {
  if (frame.size() != kFramedHeaderBytes || !begins_as_framed(frame) ||
      framed_version(frame) != kFramedVersion) {
    return std::nullopt;
  }
  for (const std::byte reserved : frame.subspan(kReservedAt, kReservedBytes)) {
    if (reserved != std::byte{0}) return std::nullopt;
  }
  FramedHeader header;
  for_each_field(
      header, [&](auto& value, std::size_t at) { std::memcpy(&value, &frame[at], sizeof(value)); });
  return header;
}

}  // namespace penstock::remote
