// SPDX-License-Identifier: Apache-2.0
// Saved lists of image folders, read as they are and with the right checksum.
#include "dataflow/datasets/manifest.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/fuzz/target.h"
#include "tests/support/manifest_bytes.h"

namespace penstock::fuzz {
namespace {

std::size_t read_manifest(std::span<const std::byte> bytes) {
  const datasets::Manifest manifest = datasets::parse_manifest(bytes);
  std::uint64_t files = 0;
  for (const datasets::ManifestClass& folder : manifest.classes) {
    ensure(!folder.name.empty() && folder.name.find('/') == std::string_view::npos,
           "a class that is no folder's name");
    files += folder.files;
  }
  const auto zeros = std::count(manifest.names.begin(), manifest.names.end(), '\0');
  ensure(files == manifest.files && static_cast<std::uint64_t>(zeros) == files, "a wrong count");
  ensure(datasets::manifest_head(manifest) + std::string(manifest.names) == as_text(bytes),
         "it is written otherwise than it was read");
  return files;
}

}  // namespace

std::size_t manifest(std::span<const std::byte> input) {
  Bytes sealed(input.begin(), input.end());
  seal_manifest(sealed);
  const std::size_t files = use_input(read_manifest, input);
  return files + use_input(read_manifest, sealed);
}

}  // namespace penstock::fuzz
