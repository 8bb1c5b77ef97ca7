// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/datapoint_writer.h"

#include <fmt/format.h>

#include <string_view>

#include "dataflow/values/array_pieces.h"
#include "dataflow/values/value_at.h"

namespace penstock::values {
namespace {

using std::string_view_literals::operator""sv;

// Opcodes of pickles, and the codes of MessagePack, are named in pickle.cpp and msgpack.cpp.
constexpr std::string_view kProtocol = "\x80\x04"sv, kBeginList = "]("sv, kEndList = "e"sv,
                           kStop = "."sv;

NumpyArray array_of(std::span<const std::byte> image) {
  return {.type = {.kind = 'u', .bytes = 1}, .shape = {static_cast<std::int64_t>(image.size())}};
}

}  // namespace

std::string dump_datapoint(Dumps dumps, std::span<const std::byte> image, std::int32_t label) {
  if (dumps == Dumps::pickle) {
    return fmt::format("{}{}{}{}{}", kProtocol, kBeginList, pickled_datapoint(image, label),
                       kEndList, kStop);
  }
  std::string out = "\x92";  // a list of two
  out.reserve(image.size() + 128);
  append_msgpack_array(out, array_of(image));
  out += text_of(image);
  out += '\xd2';  // int32
  append_big(out, static_cast<std::uint32_t>(label), 4);
  return out;
}

std::string dump_keys(Dumps dumps, std::uint64_t count) {
  const bool pickles = dumps == Dumps::pickle;
  std::string out;
  if (pickles) {
    out.append(kProtocol).append(kBeginList);
  } else {
    out += '\xdd';  // a list with a length of 32 bits
    append_big(out, count, 4);
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string key = fmt::format("{:08}", i);
    out += pickles ? 'C' : '\xc4';  // bytes with a length of 8 bits
    out += static_cast<char>(key.size());
    out += key;
  }
  if (pickles) out.append(kEndList).append(kStop);
  return out;
}

std::string begin_pickled_datapoints(std::uint64_t count) {
  std::string out(kProtocol);
  append_pickled_array(out,
                       {.type = {kNumpyObject, 8}, .shape = {static_cast<std::int64_t>(count), 2}});
  return out.append(kBeginList);
}

std::string pickled_datapoint(std::span<const std::byte> image, std::int32_t label) {
  std::string out;
  out.reserve(image.size() + 256);
  append_pickled_array(out, array_of(image));
  out.append(text_of(image)).append(kPickledArrayEnd);
  out += 'J';
  append_little(out, static_cast<std::uint32_t>(label), 4);
  return out;
}

std::string end_pickled_datapoints() {
  return fmt::format("{}{}{}", kEndList, kPickledArrayEnd, kStop);
}

}  // namespace penstock::values
