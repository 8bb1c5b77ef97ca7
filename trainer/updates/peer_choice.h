// SPDX-License-Identifier: Apache-2.0
// Chooses the rank to average with in a step, if ranks exchange in pairs. Pure functions.
#pragma once

#include <cstdint>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "trainer/collective.h"

namespace penstock::updates {

/// uniform: every other rank with equal probability. kungfu: as KungFu draws it, from all ranks; a
/// rank that draws itself takes its right neighbour, which is therefore chosen twice as often as
/// the others. round_robin: the right neighbour, then the next one, and so on.
enum class PeerRule : std::uint8_t { uniform, kungfu, round_robin };

/// A rank of `world` other than world.rank. world.size > 1, step >= 0.
inline std::int32_t choose_peer(PeerRule rule, World world, std::uint64_t seed, std::int64_t step) {
  PENSTOCK_ASSERT(world.size > 1);
  const auto right = [&](std::int64_t distance) {
    return static_cast<std::int32_t>((world.rank + distance) % world.size);
  };
  if (rule == PeerRule::round_robin) return right(1 + step % (world.size - 1));
  Random random(seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(world.rank));
  if (rule == PeerRule::uniform) {
    return right(
        1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(world.size) - 1)));
  }
  const auto drawn =
      static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(world.size)));
  return drawn == world.rank ? right(1) : drawn;
}

}  // namespace penstock::updates
