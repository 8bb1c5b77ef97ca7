// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/wire/numpy_frames.h"

#include <nlohmann/json.hpp>
#include <string>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) {
  throw DataError("message of NumPy frames: " + what);
}

json parse_header(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxNumpyHeader) {
    refuse("its header has " + std::to_string(bytes.size()) + " bytes; expected at most " +
           std::to_string(kMaxNumpyHeader));
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  json header = json::parse(text, text + bytes.size(), nullptr, false);
  if (!header.is_array()) {
    refuse(
        "its first frame is no JSON list; expected one such as "
        "[{\"dtype\": \"uint8\", \"shape\": [64, 224, 224, 3]}, "
        "{\"dtype\": \"int64\", \"shape\": [64]}]");
  }
  return header;
}

values::NumpyArray describe_array(const json& entry, const std::string& name) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape")) {
    refuse(name + " has no dtype and shape in the header");
  }
  const json &dtype = entry["dtype"], &shape = entry["shape"];
  values::NumpyArray array;
  const std::optional<values::NumpyType> type =
      dtype.is_string() ? values::parse_numpy_type_or_name(dtype.get_ref<const std::string&>())
                        : std::nullopt;
  if (!type) {
    refuse(name + " has the dtype " + dtype.dump(-1, ' ', true, json::error_handler_t::replace) +
           "; expected one of plain numbers, such as \"uint8\" or \"<i4\"");
  }
  array.type = *type;
  if (!shape.is_array() || shape.size() > values::kMaxNumpyDimensions) {
    refuse(name + "'s shape is no list of at most " + std::to_string(values::kMaxNumpyDimensions) +
           " whole numbers");
  }
  for (const json& length : shape) {
    if (!length.is_number_unsigned() || length.get<std::uint64_t>() > INT64_MAX) {
      refuse(name + "'s shape is no list of whole numbers");
    }
    array.shape.push_back(length.get<std::int64_t>());
  }
  return array;
}

}  // namespace

std::vector<values::NumpyArray> parse_numpy_frames(
    std::span<const std::span<const std::byte>> frames) {
  if (frames.empty()) refuse("there is no frame");
  const json header = parse_header(frames[0]);
  if (header.size() + 1 != frames.size()) {
    refuse("its header names " + std::to_string(header.size()) + " arrays, and " +
           std::to_string(frames.size() - 1) + " frames follow it");
  }
  std::vector<values::NumpyArray> arrays;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const std::string name = "array " + std::to_string(i);
    arrays.push_back(describe_array(header[i], name));
    values::NumpyArray& array = arrays.back();
    array.data = frames[i + 1];
    const std::optional<std::uint64_t> bytes = values::numpy_bytes(array.type, array.shape);
    if (!bytes || *bytes != array.data.size()) {
      refuse(name + " has " + std::to_string(array.data.size()) + " bytes; expected " +
             (bytes ? std::to_string(*bytes) : "no more than 2^63") + ", by its dtype and shape");
    }
  }
  return arrays;
}

}  // namespace penstock::remote
