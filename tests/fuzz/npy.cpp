// SPDX-License-Identifier: Apache-2.0
// .npy files.
#include "dataflow/values/numpy_array.h"

#include <cstdint>
#include <optional>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t npy(std::span<const std::byte> input) {
  const values::NumpyArray array = values::parse_npy(input);
  ensure(is_inside(array.data, input), "data outside the file");
  const std::optional<std::uint64_t> expected = values::numpy_bytes(array.type, array.shape);
  ensure(expected && array.data.size() <= *expected, "more data than the shape");
  if (array.data.size() >= array.type.bytes) {
    ensure(!values::numpy_integer(array.type, array.data) ||
               !values::numpy_real(array.type, array.data),
           "both a whole and a real number");
  }
  return 1;
}

}  // namespace penstock::fuzz
