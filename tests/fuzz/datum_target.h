// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a Datum.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/datum.h"
#include "tests/support/lmdb_file.h"

namespace penstock {

/// Whether they were one. Throws std::logic_error where an answer contradicts itself.
inline bool try_datum(std::span<const std::byte> bytes) {
  try {
    const Datum datum = parse_datum(bytes);
    const std::byte* const begin = bytes.data();
    if (!datum.data.empty() && (datum.data.data() < begin ||
                                datum.data.data() + datum.data.size() > begin + bytes.size())) {
      throw std::logic_error("data outside the message");
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

inline std::vector<std::vector<std::byte>> datum_corpus() {
  const std::vector<std::byte> data(24, std::byte{7});
  return {datum(3, 2, 4, data, 5, false), datum(0, 0, 0, data, -1, true)};
}

}  // namespace penstock
