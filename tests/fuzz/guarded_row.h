// SPDX-License-Identifier: Apache-2.0
// Decoding into a row of a batch between guards.
#pragma once

#include <algorithm>
#include <iterator>

#include "dataflow/decoder.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {

/// The row, of one of a few shapes, and what is beside its lines; nothing if the decoder refuses
/// the sample. Fails the target if a byte beside the row was written.
inline Bytes decode_guarded(Decoder& decoder, const Sample& sample) {
  static constexpr ImageShape kShapes[] = {{8, 8, 3}, {1, 1, 3}, {33, 17, 3}, {5, 64, 3}};
  const ImageShape shape = kShapes[sample.index % std::size(kShapes)];
  constexpr std::byte kGuard{0xA5};
  constexpr std::size_t kBeside = 5;
  const std::size_t line = static_cast<std::size_t>(shape.width) * 3, stride = line + kBeside;
  Bytes memory(stride * static_cast<std::size_t>(shape.height), kGuard);
  Random random(sample.index);
  bool decoded = true;
  try {
    decoder.decode(sample, {memory.data(), shape, DType::u8, static_cast<std::ptrdiff_t>(stride)},
                   random);
  } catch (const DataError&) {
    decoded = false;
  }
  for (std::size_t end = line; end < memory.size(); end += stride) {
    const auto beside = memory.begin() + static_cast<std::ptrdiff_t>(end);
    ensure(std::count(beside, beside + kBeside, kGuard) == kBeside, "a byte beside the row");
  }
  if (!decoded) memory.clear();
  return memory;
}

}  // namespace penstock::fuzz
