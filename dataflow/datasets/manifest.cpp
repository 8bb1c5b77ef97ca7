// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/manifest.h"

#include "dataflow/error.h"
#include "dataflow/values/crc32c.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

constexpr std::string_view kMagic{"penstock list\r\n\0", 16};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kVersionAt = 16, kCrcAt = 20, kClassesAt = 24, kFilesAt = 32,
                        kNameBytesAt = 40, kHeadBytes = 48, kClassBytes = 16;
constexpr std::uint64_t kMostFiles = (std::uint64_t{1} << 32) - 1;

[[noreturn]] void refuse(const std::string& problem) { throw DataError(problem); }

void check_name(std::string_view name, std::string_view before) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string_view::npos) {
    refuse("it has '" + std::string(name) + "' as a name");
  }
  if (name <= before) {
    refuse("the name '" + std::string(name) + "' is not sorted after '" + std::string(before) +
           "'");
  }
}

/// Takes names from the front of a block.
class Names {
 public:
  explicit Names(std::string_view block) : rest_(block) {}
  std::string_view take(std::string_view before) {
    const std::size_t end = rest_.find('\0');
    if (end == std::string_view::npos) refuse("it has fewer names than files and classes");
    const std::string_view name = rest_.substr(0, end);
    check_name(name, before);
    rest_.remove_prefix(end + 1);
    return name;
  }
  std::string_view rest() const noexcept { return rest_; }

 private:
  std::string_view rest_;
};

/// Checks that the classes and the block of names are complete.
void check_sizes(std::span<const std::byte> bytes, std::uint64_t classes, std::uint64_t files) {
  const std::uint64_t room = bytes.size() - kHeadBytes;
  const auto name_bytes = values::value_at<std::uint64_t>(bytes, kNameBytesAt);
  if (classes == 0 || files == 0) refuse("it lists nothing");
  if (classes > room / kClassBytes || name_bytes != room - classes * kClassBytes) {
    refuse("it has " + std::to_string(bytes.size()) + " bytes, and not those of " +
           std::to_string(classes) + " classes and " + std::to_string(name_bytes) +
           " bytes of names");
  }
  if (files > kMostFiles || files > name_bytes / 2) {
    refuse("it says to list " + std::to_string(files) + " files in " + std::to_string(name_bytes) +
           " bytes");
  }
}

template <typename Value>
void append(std::string& text, Value value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

Manifest parse_manifest(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) refuse("it is no manifest");
  if (bytes.size() < kHeadBytes) refuse("it ends after " + std::to_string(bytes.size()) + " bytes");
  if (const auto version = values::value_at<std::uint32_t>(bytes, kVersionAt);
      version != kVersion) {
    refuse("it has version " + std::to_string(version) + "; known is " + std::to_string(kVersion));
  }
  const auto classes = values::value_at<std::uint64_t>(bytes, kClassesAt);
  Manifest manifest{
      .classes = {}, .files = values::value_at<std::uint64_t>(bytes, kFilesAt), .names = {}};
  check_sizes(bytes, classes, manifest.files);
  if (values::crc32c(bytes.subspan(kClassesAt)) != values::value_at<std::uint32_t>(bytes, kCrcAt)) {
    refuse("its checksum does not match its data");
  }
  Names names(text.substr(kHeadBytes + classes * kClassBytes));
  manifest.classes.reserve(classes);
  std::uint64_t left = manifest.files;
  std::string_view before;
  for (std::uint64_t at = kHeadBytes; manifest.classes.size() < classes; at += kClassBytes) {
    before = names.take(before);
    const auto files = values::value_at<std::uint64_t>(bytes, at);
    if (files > left) refuse("its classes have more files than it says");
    left -= files;
    manifest.classes.push_back({before, files, values::value_at<std::int64_t>(bytes, at + 8)});
  }
  if (left > 0) refuse("its classes have fewer files than it says");
  manifest.names = names.rest();
  for (const ManifestClass& folder : manifest.classes) {
    before = {};
    for (std::uint64_t i = 0; i < folder.files; ++i) before = names.take(before);
  }
  if (!names.rest().empty()) refuse("it has more names than files and classes");
  return manifest;
}

std::string manifest_head(const Manifest& manifest) {
  std::string table, names;
  for (const ManifestClass& folder : manifest.classes) {
    append(table, folder.files);
    append(table, folder.modified);
    names += folder.name;
    names += '\0';
  }
  std::string checked;
  append(checked, std::uint64_t{manifest.classes.size()});
  append(checked, manifest.files);
  append(checked, std::uint64_t{names.size() + manifest.names.size()});
  checked += table + names;
  const std::uint32_t crc = values::crc32c(std::as_bytes(std::span(manifest.names)),
                                           values::crc32c(std::as_bytes(std::span(checked))));
  std::string head(kMagic);
  append(head, kVersion);
  append(head, crc);
  return head + checked;
}

}  // namespace penstock::datasets
