// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a datapoint.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/datapoint.h"
#include "tests/support/lmdb_file.h"

namespace penstock {

/// Whether they were one. Throws std::logic_error where an answer contradicts itself.
inline bool try_datapoint(std::span<const std::byte> bytes) {
  try {
    const Datapoint point = parse_datapoint(bytes);
    unsigned sum = 0;
    for (const std::byte byte : point.image) sum += std::to_integer<unsigned>(byte);
    if (sum == 0xffffffffU) throw std::logic_error("more bytes than there are");
    const std::optional<std::uint64_t> wanted = numpy_bytes({}, point.shape);
    if (!point.shape.empty() && wanted != point.image.size()) {
      throw std::logic_error("an image of another size than its shape");
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

inline std::vector<std::vector<std::byte>> datapoint_corpus() {
  const std::vector<std::byte> data(24, std::byte{7});
  return {msgpack_datapoint({2, 4, 3}, data, 5), msgpack_datapoint({24}, data, 300)};
}

}  // namespace penstock
