// SPDX-License-Identifier: Apache-2.0
// Results that an emulated device replays: step times that a device can take, or an error.
#include "trainer/backends/emulated/recording.h"

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t recording(std::span<const std::byte> input) try {
  const emulated::Recording replayed =
      emulated::parse_recording(as_text(input), "", "results.json");
  ensure(replayed.step_ms.size() >= 10, "a recording of too few steps");
  ensure(replayed.batch > 0 && replayed.mean_step_ms() > 0, "no images, or no time");
  for (const double ms : replayed.step_ms) ensure(ms >= 0 && ms <= 86'400e3, "no step time");
  return replayed.step_ms.size();
} catch (const ConfigError&) {
  return 0;
}

}  // namespace penstock::fuzz
