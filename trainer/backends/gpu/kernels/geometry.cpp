// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/kernels/geometry.h"

namespace penstock::gpu {

std::int32_t sum_blocks(std::int64_t rows, std::int32_t channels) {
  return sum_geometry(rows, channels).row_blocks;
}

}  // namespace penstock::gpu
