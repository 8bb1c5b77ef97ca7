// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a message to a parameter server:
// the header, then the data as a layout and as texts. Throws std::logic_error where an answer
// contradicts itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/error.h"
#include "trainer/servers/message.h"
#include "trainer/servers/model_layout.h"

namespace penstock {

/// Whether the bytes were a message whose data are what its kind says.
inline bool try_server_message(std::span<const std::byte> bytes) {
  const std::size_t cut = std::min(bytes.size(), kHeaderBytes);
  const std::span<const std::byte> data = bytes.subspan(cut);
  try {
    const ServerHeader header = parse_header(bytes.first(cut), data.size());
    if (header.length != data.size()) throw std::logic_error("a length that is another");
    if (header.kind == MessageKind::gather) {
      std::size_t length = 0;
      for (const std::string& text : split_texts(data, 2)) length += 4 + text.size();
      if (length != data.size()) throw std::logic_error("bytes that no text accounts for");
    }
    if (header.kind == MessageKind::layout) {
      const ModelLayout layout = parse_layout(data);
      for (const Part& part : layout.parts) {
        std::size_t count = 0;
        for (const Segment& segment : part.segments) count += segment.elements;
        if (count != part.count || count > kMaxFrame / 4) throw std::logic_error("a part too long");
      }
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// A good message of each kind that a worker sends, for a model of four weights.
inline std::vector<std::vector<std::byte>> server_message_corpus() {
  const auto message = [](ServerHeader header, std::span<const std::byte> data) {
    header.length = data.size();
    std::vector<std::byte> bytes(kHeaderBytes);
    write_header(header, std::span<std::byte, kHeaderBytes>(bytes));
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
  };
  const auto text = [](std::string_view of) { return std::as_bytes(std::span(of)); };
  const std::string texts[] = {"about", "mine"};
  const ModelLayout layout{ServerRule::together,
                           "sgd",
                           {{.count = 3, .segments = {{2, true}, {1, false}}},
                            {.key = 1, .fixed = true, .count = 5, .segments = {{5, false}}}}};
  const float weights[] = {1, 2, 3, 4};
  const std::span<const std::byte> floats = std::as_bytes(std::span(weights));
  return {message({.kind = MessageKind::hello}, text("a run")),
          message({.kind = MessageKind::beat, .key = 2, .step = 3}, {}),
          message({.kind = MessageKind::gather, .value = 3}, text(join_texts(texts))),
          message({.kind = MessageKind::layout}, text(write_layout(layout, 0))),
          message({.kind = MessageKind::first}, floats),
          message({.kind = MessageKind::push, .learning_rate = 1}, floats),
          message({.kind = MessageKind::pull}, {})};
}

}  // namespace penstock
