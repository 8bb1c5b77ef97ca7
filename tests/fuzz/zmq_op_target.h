// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a message: take it apart, check
// it against a spec, copy it. Throws std::logic_error where an answer contradicts itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/wire/zmq_op.h"

namespace penstock {

inline constexpr BatchSpec kFuzzSpec{.images = 2, .image = {2, 3, 1}, .classes = 10};

/// Whether the message was a batch of kFuzzSpec.
inline bool try_zmq_op(std::span<const std::byte> bytes) {
  try {
    const WireMessage message = parse_zmq_op(bytes);
    std::size_t data = 0;
    for (std::size_t i = 0; i < message.tensors; ++i) {
      const std::span<const std::byte> view = message.tensor[i].data;
      if (view.data() < bytes.data() || view.data() + view.size() > bytes.data() + bytes.size()) {
        throw std::logic_error("a view outside the message");
      }
      data += view.size() + 16 + 4 * message.tensor[i].dimensions;
    }
    if (data + 4 != bytes.size()) throw std::logic_error("bytes that no tensor accounts for");
    const WireBatch batch = as_batch(message, kFuzzSpec);
    std::vector<std::byte> pixels(kFuzzSpec.pixel_bytes());
    std::vector<std::int32_t> labels(static_cast<std::size_t>(kFuzzSpec.images));
    Batch slot;
    slot.pixels = pixels;
    slot.labels = labels;
    copy_batch(batch, slot);
    for (const std::int32_t label : labels) {
      if (label < 0 || label >= kFuzzSpec.classes) throw std::logic_error("a label out of range");
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace penstock
