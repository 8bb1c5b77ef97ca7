// SPDX-License-Identifier: Apache-2.0
// Books of plans: every text is some choices or none.
#include "trainer/backends/gpu/plan_book.h"

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t plan_book(std::span<const std::byte> input) {
  return gpu::parse_plan_book(as_text(input), "H200", "9.19").choices.size();
}

}  // namespace penstock::fuzz
