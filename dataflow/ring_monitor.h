// SPDX-License-Identifier: Apache-2.0
// How full something was over time, in bounded memory. Bins of equal width hold the integral of the
// level. When all bins are used, pairs are joined and the width doubles. Only means() allocates.
//
// Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

class LevelHistory {
 public:
  static constexpr std::size_t kBins = 400;
  static constexpr Nanoseconds kFirstWidth = std::chrono::microseconds(100);

  /// The level was `level` for `duration`, directly after all that was added before.
  void add(std::int64_t level, Nanoseconds duration);
  void clear() { *this = LevelHistory(); }

  Nanoseconds length() const noexcept { return length_; }
  /// Mean levels in `parts` equal parts of the whole length. If an edge is inside a bin, the bin
  /// counts as having its mean level throughout. Empty if nothing was added.
  std::vector<double> means(std::size_t parts) const;

 private:
  void join_pairs();
  double integral_until(double ns) const;

  Nanoseconds width_ = kFirstWidth;
  Nanoseconds length_{};
  std::array<std::int64_t, kBins> integrals_{};  // level * ns
};

}  // namespace penstock
