// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a manifest. Throws
// std::logic_error where an answer contradicts itself.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/manifest.h"
#include "tests/support/manifest_bytes.h"

namespace penstock {

/// How many files there are; -1: it is no manifest. With `sealed` the checksum is made right first,
/// so that what lies behind it is reached.
inline std::int64_t try_manifest(std::span<const std::byte> input, bool sealed) {
  std::vector<std::byte> bytes(input.begin(), input.end());  // a block of exactly this size
  if (sealed) seal_manifest(bytes);
  try {
    const Manifest manifest = parse_manifest(bytes);
    std::uint64_t files = 0, zeros = 0;
    for (const ManifestClass& folder : manifest.classes) {
      if (folder.name.empty() || folder.name.find('/') != std::string_view::npos) {
        throw std::logic_error("a class that is no folder's name");
      }
      files += folder.files;
    }
    for (const char letter : manifest.names) zeros += letter == '\0' ? 1 : 0;
    if (files != manifest.files || zeros != files) throw std::logic_error("a wrong count");
    const std::string again = manifest_head(manifest) + std::string(manifest.names);
    if (again != std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())) {
      throw std::logic_error("it is written otherwise than it was read");
    }
    return static_cast<std::int64_t>(files);
  } catch (const DataError&) {
    return -1;
  }
}

/// Of four files in two of three classes, and of one file.
inline std::vector<std::vector<std::byte>> manifest_corpus() {
  const std::vector<ManifestFolder> folders[] = {
      {{"a", 1, {"1.JPEG", "2.JPEG", "3.png"}}, {"b", 2, {}}, {"c", -3, {"x.jpg"}}},
      {{"n01440764", 1'600'000'000'000'000'000, {"n01440764_1.JPEG"}}}};
  return {manifest_bytes(folders[0]), manifest_bytes(folders[1])};
}

}  // namespace penstock
