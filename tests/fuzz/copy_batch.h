// SPDX-License-Identifier: Apache-2.0
// What the targets of message formats do with a batch.
#pragma once

#include <cstdint>
#include <vector>

#include "feeders/remote/wire/wire_batch.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {

inline constexpr BatchSpec kSpec{.images = 2, .image = {2, 3, 1}, .classes = 10};

/// Copies a batch of kSpec into a slot and checks its labels.
inline void copy_batch_checked(const remote::WireBatch& batch) {
  std::vector<std::byte> pixels(kSpec.pixel_bytes());
  std::vector<std::int32_t> labels(static_cast<std::size_t>(kSpec.images));
  Batch slot;
  slot.pixels = pixels;
  slot.labels = labels;
  remote::copy_batch(batch, slot);
  for (const std::int32_t label : labels) {
    ensure(label >= 0 && label < kSpec.classes, "a label out of range");
  }
}

}  // namespace penstock::fuzz
