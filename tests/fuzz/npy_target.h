// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a .npy file.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/npy.h"
#include "tests/support/npy_file.h"

namespace penstock {

/// Whether they were such a file. Throws std::logic_error where an answer contradicts itself.
inline bool try_npy(std::span<const std::byte> bytes) {
  try {
    const NumpyArray array = parse_npy(bytes);
    if (!array.data.empty() &&
        (array.data.data() < bytes.data() ||
         array.data.data() + array.data.size() > bytes.data() + bytes.size())) {
      throw std::logic_error("data outside the file");
    }
    const std::optional<std::uint64_t> wanted = numpy_bytes(array.type, array.shape);
    if (!wanted || array.data.size() > *wanted) throw std::logic_error("more data than the shape");
    if (array.data.size() >= array.type.bytes) {
      if (numpy_integer(array.type, array.data) && numpy_real(array.type, array.data)) {
        throw std::logic_error("both a whole and a real number");
      }
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// Of every version of the format.
inline std::vector<std::vector<std::byte>> npy_corpus() {
  const std::vector<std::byte> data(24, std::byte{7});
  return {npy_file("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 2, 3), }", data),
          npy_file("{'descr': '<i8', 'fortran_order': True, 'shape': (3,), }", data, 2),
          npy_file("{'descr': '>f4', 'fortran_order': False, 'shape': (), }", data, 3)};
}

}  // namespace penstock
