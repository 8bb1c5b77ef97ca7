// SPDX-License-Identifier: Apache-2.0
// Files of queue:coverage: counts that add up, or an error.
#include "bench/dataset/coverage.h"

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t coverage(std::span<const std::byte> input) {
  const dataset::Coverage merged =
      dataset::merge_coverage({{"input", std::string(as_text(input))}});
  for (const dataset::EpochCoverage& epoch : merged.epochs) {
    ensure(epoch.once + epoch.missing <= merged.samples, "more samples than there are");
    ensure(epoch.missing == 0 || !epoch.missing_samples.empty(), "missing samples have no names");
  }
  ensure(!to_text(merged).empty(), "no text");
  return 1;
}

}  // namespace penstock::fuzz
