// SPDX-License-Identifier: Apache-2.0
// The structures are those of PKWARE's APPNOTE.TXT 6.3, sections 4.3.7 to 4.3.16 and 4.5.3.
#include "dataflow/datasets/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

using Bytes = std::span<const std::byte>;
using values::value_at;

constexpr std::uint32_t kLocal = 0x04034b50, kEntry = 0x02014b50, kEnd = 0x06054b50,
                        kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                      kLocator64Bytes = 20;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the number is in the zip64 field

[[noreturn]] void refuse(const std::string& problem) {
  throw DataError("a ZIP archive that cannot be read: " + problem);
}

/// `count` bytes at `at`. Throws DataError if the archive does not have them.
Bytes part(Bytes archive, std::uint64_t at, std::uint64_t count, const char* what) {
  if (at > archive.size() || count > archive.size() - at) {
    refuse(fmt::format("{} at byte {} is beyond its end", what, at));
  }
  return archive.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
}

/// The offset of the first entry of the central directory, and their number.
struct Directory {
  std::uint64_t begin = 0, entries = 0;
};

Directory find_directory(Bytes archive) {
  constexpr std::size_t kLongestComment = 0xffff;
  const std::size_t size = archive.size();
  for (std::size_t back = kEndBytes; back <= std::min(size, kEndBytes + kLongestComment); ++back) {
    const std::size_t at = size - back;
    if (value_at<std::uint32_t>(archive, at) != kEnd) continue;
    Directory directory{value_at<std::uint32_t>(archive, at + 16),
                        value_at<std::uint16_t>(archive, at + 10)};
    const bool has_64 = at >= kLocator64Bytes &&
                        value_at<std::uint32_t>(archive, at - kLocator64Bytes) == kLocator64;
    if (has_64) {
      const Bytes end = part(archive, value_at<std::uint64_t>(archive, at - kLocator64Bytes + 8),
                             kEnd64Bytes, "the end of its directory");
      if (value_at<std::uint32_t>(end, 0) != kEnd64) refuse("its zip64 directory has no end");
      directory = {value_at<std::uint64_t>(end, 48), value_at<std::uint64_t>(end, 32)};
    }
    return directory;
  }
  refuse("it has no central directory; it may be truncated");
}

/// Replaces the numbers of a member that are in its zip64 field.
void read_zip64(Bytes extra, ZipMember& member) {
  constexpr std::uint16_t kZip64 = 1;
  while (extra.size() >= 4) {
    const auto id = value_at<std::uint16_t>(extra, 0), length = value_at<std::uint16_t>(extra, 2);
    extra = extra.subspan(4);
    if (length > extra.size()) refuse("an extra field is longer than its entry");
    Bytes field = extra.first(length);
    extra = extra.subspan(length);
    if (id != kZip64) continue;
    for (std::uint64_t* number : {&member.bytes, &member.packed_bytes, &member.header}) {
      if (*number != kIn64) continue;
      if (field.size() < 8) refuse("a zip64 field is too short");
      *number = value_at<std::uint64_t>(field, 0);
      field = field.subspan(8);
    }
  }
}

Bytes content_of(Bytes archive, const ZipMember& member) {
  const Bytes local = part(archive, member.header, kLocalBytes, "a member");
  if (value_at<std::uint32_t>(local, 0) != kLocal) refuse("a member has no local header");
  if ((value_at<std::uint16_t>(local, 6) & 1) != 0) refuse("a member is encrypted");
  const std::uint64_t begin = member.header + kLocalBytes + value_at<std::uint16_t>(local, 26) +
                              value_at<std::uint16_t>(local, 28);
  return part(archive, begin, member.packed_bytes, "a member's content");
}

/// Fills `out` with the beginning of what Deflate's stream holds.
void inflate_to(Bytes packed, std::span<std::byte> out) {
  constexpr int kRaw = -15;
  constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
  z_stream stream{};
  if (inflateInit2(&stream, kRaw) != Z_OK) throw std::bad_alloc();
  int result = Z_OK;
  while (result == Z_OK && !out.empty()) {
    const auto in = static_cast<uInt>(std::min(packed.size(), kMost)),
               room = static_cast<uInt>(std::min(out.size(), kMost));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    stream.avail_in = in;
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = room;
    result = inflate(&stream, Z_NO_FLUSH);
    packed = packed.subspan(in - stream.avail_in);
    out = out.subspan(room - stream.avail_out);
  }
  inflateEnd(&stream);
  if (!out.empty()) refuse("a member's content is damaged: it cannot be inflated to its length");
}

}  // namespace

std::vector<ZipMember> list_zip(std::span<const std::byte> archive) {
  const Directory directory = find_directory(archive);
  std::vector<ZipMember> members;
  std::uint64_t at = directory.begin;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const Bytes entry = part(archive, at, kEntryBytes, "an entry of its directory");
    if (value_at<std::uint32_t>(entry, 0) != kEntry) refuse("its directory is damaged");
    const std::uint64_t name_bytes = value_at<std::uint16_t>(entry, 28),
                        extra_bytes = value_at<std::uint16_t>(entry, 30),
                        comment_bytes = value_at<std::uint16_t>(entry, 32);
    const Bytes rest = part(archive, at + kEntryBytes, name_bytes + extra_bytes + comment_bytes,
                            "an entry of its directory");
    ZipMember member{.name = {reinterpret_cast<const char*>(rest.data()), name_bytes},
                     .method = value_at<std::uint16_t>(entry, 10),
                     .crc = value_at<std::uint32_t>(entry, 16),
                     .packed_bytes = value_at<std::uint32_t>(entry, 20),
                     .bytes = value_at<std::uint32_t>(entry, 24),
                     .header = value_at<std::uint32_t>(entry, 42)};
    read_zip64(rest.subspan(name_bytes, extra_bytes), member);
    members.push_back(std::move(member));
    at += kEntryBytes + rest.size();
  }
  return members;
}

std::vector<std::byte> read_zip_member(std::span<const std::byte> archive, const ZipMember& member,
                                       std::uint64_t most) {
  constexpr std::uint64_t kDeflateGain = 1032;  // of zlib, at most
  const Bytes packed = content_of(archive, member);
  const bool deflated = member.method == 8;
  if (!deflated && member.method != 0) {
    refuse(fmt::format("'{}' is compressed by method {}; expected none or Deflate", member.name,
                       member.method));
  }
  if (deflated ? member.bytes / kDeflateGain > packed.size() : member.bytes != packed.size()) {
    refuse(fmt::format("'{}' claims {} bytes", member.name, member.bytes));
  }
  std::vector<std::byte> content(static_cast<std::size_t>(std::min(member.bytes, most)));
  if (deflated) {
    inflate_to(packed, content);
  } else {
    std::ranges::copy(packed.first(content.size()), content.begin());
  }
  const auto crc = [&] {
    return crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
  };
  if (content.size() == member.bytes && crc() != member.crc) {
    refuse(fmt::format("the content of '{}' does not match its CRC", member.name));
  }
  return content;
}

}  // namespace penstock::datasets
