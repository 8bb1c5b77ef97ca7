// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/wire/batch_message.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "feeders/pixel_options.h"
#include "feeders/remote/wire/framed.h"
#include "feeders/remote/wire/zmq_op.h"

namespace penstock::remote {
namespace {

constexpr std::pair<MessageFormat, std::string_view> kFormats[] = {
    {MessageFormat::zmq_op, "zmq-op"},   {MessageFormat::pickle, "pickle"},
    {MessageFormat::msgpack, "msgpack"}, {MessageFormat::numpy_frames, "numpy-frames"},
    {MessageFormat::framed, "framed"},
};

/// A MessagePack list or map; zmq_op messages never begin with such a byte.
bool begins_as_msgpack(std::uint8_t first) noexcept {
  return (first >= 0x80 && first <= 0x9f) || (first >= 0xdc && first <= 0xdf);
}

std::string describe(const values::NumpyArray& array) {
  if (array.shape.empty()) return to_string(array.type) + " scalar";
  return fmt::format("{} [{}]", to_string(array.type), fmt::join(array.shape, ","));
}

/// NumPy's type of pixels. NumPy has no bfloat16: its bits travel as uint16.
values::NumpyType numpy_type_of(DType type) {
  const auto bytes = static_cast<std::uint8_t>(size_of(type));
  return {.kind = type == DType::f16 || type == DType::f32 ? 'f' : 'u', .bytes = bytes};
}

std::optional<DType> dtype_of(const values::NumpyType& type) {
  for (const DType pixel : {DType::u8, DType::f16, DType::bf16, DType::f32}) {
    if (type == numpy_type_of(pixel)) return pixel;
  }
  return std::nullopt;
}

/// Builds a batch from pixels and labels, in this order, for formats with plain arrays.
WireBatch batch_of(std::span<const values::NumpyArray* const> arrays, const BatchSpec& spec,
                   const std::string& message) {
  const std::array<std::int32_t, 4> lengths = pixel_lengths(spec);
  const values::NumpyArray pixels{.type = numpy_type_of(spec.pixel),
                                  .shape = {lengths.begin(), lengths.end()}};
  const values::NumpyArray labels{.type = {.kind = 'i', .bytes = 4}, .shape = {spec.images}};
  const bool fits = arrays.size() == 2 && arrays[0]->type == pixels.type &&
                    arrays[0]->shape == pixels.shape &&
                    (arrays[1]->type.kind == 'i' || arrays[1]->type.kind == 'u') &&
                    arrays[1]->shape == labels.shape;
  if (!fits) {
    std::string text = message + " holds ";
    for (const values::NumpyArray* array : arrays) {
      text += (array == arrays.front() ? "" : " and ") + describe(*array);
    }
    text +=
        fmt::format("{}; expected {} and whole numbers {}", arrays.empty() ? "no array" : "",
                    describe(pixels), describe(labels).substr(to_string(labels.type).size() + 1));
    if (arrays.empty()) throw DataError(text);
    refuse_pixels(text, dtype_of(arrays[0]->type), arrays[0]->shape, spec);
  }
  const WireBatch batch{arrays[0]->data, arrays[1]->data, arrays[1]->type};
  check_labels(batch, spec, message);
  return batch;
}

/// Returns the items of the list that a producer sends for a datapoint.
std::vector<const values::NumpyArray*> arrays_of(const values::ValueTree& tree,
                                                 const std::string& message) {
  const values::Value& root = tree.root();
  const auto refuse = [&](const std::string& what) {
    throw DataError("{} holds {}; expected a list of two NumPy arrays: pixels and labels", message,
                    what);
  };
  if (root.kind != values::ValueKind::list && root.kind != values::ValueKind::tuple)
    refuse("no list");
  // A list may contain the same value several times.
  if (root.items.size() != 2) refuse(fmt::format("a list of {}", root.items.size()));
  std::vector<const values::NumpyArray*> arrays;
  for (const values::ValueId item : root.items) {
    if (tree.at(item).kind != values::ValueKind::array) {
      refuse(fmt::format("something other than an array at place {}", arrays.size()));
    }
    arrays.push_back(&tree.at(item).array);
  }
  return arrays;
}

// ---- numpy-frames: for producers that have no library except ZeroMQ ----------
//
//   frame 0   [{"dtype": "uint8", "shape": [N, 224, 224, 3]}, {"dtype": "int64", "shape": [N]}]
//   frame 1   the bytes of the first array, row-major; and so on
//
// The header is JSON in UTF-8. A dtype is a NumPy name ("uint8", "float32") or its short form
// ("|u1", "<f4"). Other names in an entry are ignored.

/// Longest accepted header, in bytes.
constexpr std::size_t kMaxNumpyHeader = 4096;

using nlohmann::json;

template <typename... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> text, Values&&... values) {
  throw DataError("message of NumPy frames: {}",
                  fmt::format(text, std::forward<Values>(values)...));
}

json parse_header(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxNumpyHeader) {
    refuse("its header has {} bytes; expected at most {}", bytes.size(), kMaxNumpyHeader);
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  json header = json::parse(text, text + bytes.size(), nullptr, false);
  if (!header.is_array()) {
    refuse(
        "its first frame is no JSON list; expected one such as [{{\"dtype\": \"uint8\", \"shape\": "
        "[64, 224, 224, 3]}}, {{\"dtype\": \"int64\", \"shape\": [64]}}]");
  }
  return header;
}

values::NumpyArray describe_array(const json& entry, const std::string& name) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape")) {
    refuse("{} has no dtype and shape in the header", name);
  }
  const json &dtype = entry["dtype"], &shape = entry["shape"];
  values::NumpyArray array;
  const std::optional<values::NumpyType> type =
      dtype.is_string() ? values::parse_numpy_type_or_name(dtype.get_ref<const std::string&>())
                        : std::nullopt;
  if (!type) {
    refuse("{} has the dtype {}; expected one of plain numbers, such as \"uint8\" or \"<i4\"", name,
           dtype.dump(-1, ' ', true, json::error_handler_t::replace));
  }
  array.type = *type;
  if (!shape.is_array() || shape.size() > values::kMaxNumpyDimensions) {
    refuse("{}'s shape is no list of at most {} whole numbers", name, values::kMaxNumpyDimensions);
  }
  for (const json& length : shape) {
    if (!length.is_number_unsigned() || length.get<std::uint64_t>() > INT64_MAX) {
      refuse("{}'s shape is no list of whole numbers", name);
    }
    array.shape.push_back(length.get<std::int64_t>());
  }
  return array;
}

/// Returns the arrays of a message as views of its frames. Throws DataError, which names the array,
/// what was found and what was expected.
std::vector<values::NumpyArray> parse_numpy_frames(MessageFrames frames) {
  if (frames.empty()) refuse("there is no frame");
  const json header = parse_header(frames[0]);
  if (header.size() + 1 != frames.size()) {
    refuse("its header names {} arrays, and {} frames follow it", header.size(), frames.size() - 1);
  }
  std::vector<values::NumpyArray> arrays;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const std::string name = fmt::format("array {}", i);
    arrays.push_back(describe_array(header[i], name));
    values::NumpyArray& array = arrays.back();
    array.data = frames[i + 1];
    const std::optional<std::uint64_t> bytes = values::numpy_bytes(array.type, array.shape);
    if (!bytes || *bytes != array.data.size()) {
      refuse("{} has {} bytes; expected {}, by its dtype and shape", name, array.data.size(),
             bytes ? std::to_string(*bytes) : "no more than 2^63");
    }
  }
  return arrays;
}

}  // namespace

std::string_view to_string(MessageFormat format) noexcept {
  for (const auto& [known, name] : kFormats) {
    if (known == format) return name;
  }
  return "?";
}

std::optional<MessageFormat> message_format_of(std::string_view name) {
  const std::string canonical = canonical_name(name);
  if (canonical == "zmq-ops") return MessageFormat::zmq_op;
  for (const auto& [format, known] : kFormats) {
    if (known == canonical) return format;
  }
  return std::nullopt;
}

MessageFormat parse_message_format(std::string_view name, std::string_view what,
                                   std::string_view before) {
  if (const std::optional<MessageFormat> format = message_format_of(name)) return *format;
  throw ConfigError("{} is '{}'; expected {}zmq_op, pickle, msgpack, numpy-frames or framed", what,
                    name, before);
}

MessageFormat detect_message_format(MessageFrames frames) noexcept {
  if (frames.empty() || frames[0].empty()) return MessageFormat::zmq_op;
  if (begins_as_framed(frames[0])) return MessageFormat::framed;
  const auto first = std::to_integer<std::uint8_t>(frames[0][0]);
  if (frames.size() > 1 || first == '[') return MessageFormat::numpy_frames;
  if (values::is_pickle(frames[0])) return MessageFormat::pickle;
  // zmq_op has no such large number of tensors: its bytes 1 to 3 are zeros.
  return begins_as_msgpack(first) ? MessageFormat::msgpack : MessageFormat::zmq_op;
}

WireBatch BatchMessageReader::read(MessageFormat format, MessageFrames frames) {
  if (spec_.opaque && format != MessageFormat::framed) {
    throw DataError("a message of the format {}; arrays that are no images come as framed messages",
                    to_string(format));
  }
  if (format == MessageFormat::zmq_op && frames.size() == 1) {
    values::refuse_pyarrow(frames[0]);
    return as_batch(parse_zmq_op(frames[0]), spec_);
  }
  if (format == MessageFormat::framed) return framed_pixels(parse_framed(frames), spec_);
  const std::string message = std::string(to_string(format)) + " message";
  if (format == MessageFormat::numpy_frames) {
    const std::vector<values::NumpyArray> arrays = parse_numpy_frames(frames);
    std::vector<const values::NumpyArray*> views;
    for (const values::NumpyArray& array : arrays) views.push_back(&array);
    return batch_of(views, spec_, message);
  }
  if (frames.size() != 1) {
    throw DataError("{} of {} frames; expected one frame", message, frames.size());
  }
  tree_ = format == MessageFormat::pickle ? values::parse_pickle(frames[0])
                                          : values::parse_msgpack(frames[0]);
  return batch_of(arrays_of(tree_, message), spec_, message);
}

}  // namespace penstock::remote
