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

/// Takes a batch of kFuzzSpec into a slot. Throws std::logic_error where a label is none.
inline void copy_fuzzed_batch(const WireBatch& batch) {
  std::vector<std::byte> pixels(kFuzzSpec.pixel_bytes());
  std::vector<std::int32_t> labels(static_cast<std::size_t>(kFuzzSpec.images));
  Batch slot;
  slot.pixels = pixels;
  slot.labels = labels;
  copy_batch(batch, slot);
  for (const std::int32_t label : labels) {
    if (label < 0 || label >= kFuzzSpec.classes) throw std::logic_error("a label out of range");
  }
}

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
    copy_fuzzed_batch(batch);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// Batches of kFuzzSpec with labels of 32 and 64 bits, a scalar, and a tensor of eight dimensions.
inline std::vector<std::vector<std::byte>> zmq_op_corpus() {
  using Bytes = std::vector<std::byte>;
  const BatchLayout layout(kFuzzSpec, kFuzzSpec.images);
  Bytes batch(layout.size());
  layout.write_headers(batch);

  Bytes wide(batch.begin(), batch.begin() + BatchLayout::kPixelsAt + 12);
  wide.resize(wide.size() + 20 + 16);
  const std::int32_t labels_shape[] = {2};
  write_tensor_header(std::span(wide).subspan(BatchLayout::kPixelsAt + 12), WireType::i64,
                      labels_shape);

  Bytes scalar(4 + 16 + 4);
  scalar[0] = std::byte{1};
  write_tensor_header(std::span(scalar).subspan(4), WireType::i32, {});

  Bytes deep(4 + 48 + 16);
  deep[0] = std::byte{1};
  const std::int32_t deep_shape[] = {1, 2, 1, 2, 1, 1, 1, 1};
  write_tensor_header(std::span(deep).subspan(4), WireType::f32, deep_shape);
  return {batch, wide, scalar, deep};
}

}  // namespace penstock
