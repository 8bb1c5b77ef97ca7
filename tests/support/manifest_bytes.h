// SPDX-License-Identifier: Apache-2.0
// Manifests in memory, laid out by the tests' own writer, and changed manifests with a correct
// checksum.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "dataflow/values/crc32c.h"
#include "tests/support/text_bytes.h"

namespace penstock {

inline constexpr std::size_t kManifestCrcAt = 20;

/// Sets the checksum of bytes that are long enough to have one.
inline void seal_manifest(std::span<std::byte> bytes) {
  if (bytes.size() < kManifestCrcAt + 4) return;
  const std::uint32_t crc = values::crc32c(bytes.subspan(kManifestCrcAt + 4));
  std::memcpy(bytes.data() + kManifestCrcAt, &crc, sizeof crc);
}

/// (name, time, files) of a class.
struct ManifestFolder {
  std::string name;
  std::int64_t modified = 0;
  std::vector<std::string> files;
};
inline std::vector<std::byte> manifest_bytes(std::span<const ManifestFolder> folders) {
  std::string numbers, folder_names, file_names;
  std::uint64_t files = 0;
  const auto append = [](std::string& text, auto value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const ManifestFolder& folder : folders) {
    append(numbers, std::uint64_t{folder.files.size()});
    append(numbers, folder.modified);
    folder_names += folder.name + '\0';
    for (const std::string& file : folder.files) file_names += file + '\0';
    files += folder.files.size();
  }
  std::string text("penstock list\r\n\0", 16);
  append(text, std::uint32_t{1});
  append(text, std::uint32_t{0});
  append(text, std::uint64_t{folders.size()});
  append(text, files);
  append(text, std::uint64_t{folder_names.size() + file_names.size()});
  text += numbers + folder_names + file_names;
  std::vector<std::byte> bytes = bytes_of_text(text);
  seal_manifest(bytes);
  return bytes;
}

}  // namespace penstock
