// SPDX-License-Identifier: Apache-2.0
#include "trainer/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
/// A tensor takes about 150 bytes of header; the largest models have thousands of tensors.
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{16} << 20;
constexpr std::size_t kMaxDimensions = 8;
constexpr const char* kMetadata = "__metadata__";

template <typename... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> text, Values&&... values) {
  throw DataError("it is no safetensors file of f32 tensors: {}",
                  fmt::format(text, std::forward<Values>(values)...));
}

std::uint64_t read_length(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return length;
}

/// The whole number of at least 0 in `json`; throws for other values.
std::uint64_t count_in(const Json& json, const std::string& what) {
  if (!json.is_number_unsigned()) refuse("{} is not a whole number of at least 0", what);
  return json.get<std::uint64_t>();
}

/// The bytes of a tensor of this shape, at most `limit`. Checks the shape.
std::uint64_t bytes_of(const std::vector<std::int64_t>& shape, std::uint64_t limit,
                       const std::string& name) {
  std::uint64_t elements = 1;
  for (const std::int64_t dimension : shape) {
    const auto size = static_cast<std::uint64_t>(dimension);
    if (size != 0 && elements > limit / size) refuse("'{}' is larger than the file", name);
    elements *= size;
  }
  if (elements > limit / sizeof(float)) refuse("'{}' is larger than the file", name);
  return elements * sizeof(float);
}

struct Range {
  std::uint64_t begin, end;
};

Range range_of(const Json& entry, const std::string& name, std::uint64_t limit) {
  const auto found = entry.find("data_offsets");
  if (found == entry.end() || !found->is_array() || found->size() != 2) {
    refuse("'{}' has no data_offsets", name);
  }
  const Range range{count_in((*found)[0], "an offset"), count_in((*found)[1], "an offset")};
  if (range.begin > range.end || range.end > limit) refuse("'{}' ends outside the file", name);
  return range;
}

SafeTensor parse_tensor(const std::string& name, const Json& entry,
                        std::span<const std::byte> data) {
  if (!entry.is_object()) refuse("'{}' is not described by an object", name);
  const auto dtype = entry.find("dtype"), shape = entry.find("shape");
  if (dtype == entry.end() || *dtype != "F32") refuse("'{}' is not of dtype F32", name);
  if (shape == entry.end() || !shape->is_array() || shape->size() > kMaxDimensions) {
    refuse("'{}' has no shape of at most {} dimensions", name, kMaxDimensions);
  }
  SafeTensor tensor{name, {}, {}};
  for (const Json& dimension : *shape) {
    const std::uint64_t size = count_in(dimension, "a dimension");
    if (size > data.size()) refuse("'{}' is larger than the file", name);
    tensor.shape.push_back(static_cast<std::int64_t>(size));
  }
  const Range range = range_of(entry, name, data.size());
  if (range.end - range.begin != bytes_of(tensor.shape, data.size(), name)) {
    refuse("the data of '{}' are not as long as its shape says", name);
  }
  tensor.data = data.subspan(range.begin, range.end - range.begin);
  return tensor;
}

void parse_metadata(const Json& entry, std::map<std::string, std::string>& metadata) {
  if (!entry.is_object()) refuse("its metadata are no object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) refuse("its metadata '{}' are no text", key);
    metadata[key] = value.get<std::string>();
  }
}

}  // namespace

SafeTensors parse_safetensors(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) refuse("it has {} bytes", file.size());
  const std::uint64_t length = read_length(file);
  const std::span<const std::byte> rest = file.subspan(kLengthBytes);
  if (length > rest.size() || length > kMaxHeaderBytes) {
    refuse("its header would have {} of {} bytes", length, file.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), length);
  const Json header = Json::parse(text, nullptr, false);
  if (!header.is_object()) refuse("its header is no JSON object");
  SafeTensors result{{}, {}, rest.subspan(length)};
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      parse_metadata(entry, result.metadata);
    } else {
      result.tensors.push_back(parse_tensor(name, entry, result.data));
    }
  }
  std::stable_sort(
      result.tensors.begin(), result.tensors.end(),
      [](const SafeTensor& a, const SafeTensor& b) { return a.data.data() < b.data.data(); });
  const std::byte* end = result.data.data();
  for (const SafeTensor& tensor : result.tensors) {
    if (tensor.data.data() != end) refuse("'{}' does not follow the one before", tensor.name);
    end += tensor.data.size();
  }
  if (end != result.data.data() + result.data.size()) refuse("it has bytes behind its tensors");
  return result;
}

std::string safetensors_header(const std::map<std::string, std::string>& metadata,
                               std::span<const SafeTensor> tensors) {
  Json header;
  header[kMetadata] = metadata;
  std::uint64_t offset = 0;
  for (const SafeTensor& tensor : tensors) {
    const std::uint64_t end = offset + tensor.data.size();
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  std::string result;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    result += static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  return result + text;
}

}  // namespace penstock
