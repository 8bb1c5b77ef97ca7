// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "dataflow/error.h"
#include "tests/support/virtual_clock.h"
#include "trainer/backend.h"

namespace penstock {
namespace {

std::unique_ptr<Backend> make(const std::string& text, Clock& clock) {
  const ComponentText parts = parse_component(text);
  const BackendEntry& entry = find_entry(backend_table(), parts.name);
  const Options options(entry.name, entry.options, parts);
  return entry.make(options, clock);
}

TEST(Emulated, PresetsAreThePublishedBatchOverComputationTime) {
  VirtualClock clock;
  EXPECT_NEAR(make("emulated", clock)->facts().at("emulated_img_per_s"), 1785.7, 0.05);
  EXPECT_NEAR(make("emulated:preset=a100-mlperf-storage", clock)->facts().at("emulated_img_per_s"),
              919.5, 0.05);
  EXPECT_EQ(make("emulated:a100-mlperf-storage", clock)->facts(),
            make("emulated:preset=a100-mlperf-storage", clock)->facts());
}

TEST(Emulated, RefusesRatesAndWordsThatMeanNothing) {
  VirtualClock clock;
  for (const char* text :
       {"emulated:img_per_s=0", "emulated:img_per_s=-1", "emulated:img_per_s=fast",
        "emulated:img_per_s=nan", "emulated:preset=b200", "emulated:copy=maybe",
        "emulated:exchange=ms=-1", "emulated:exchange=often"}) {
    EXPECT_THROW(make(text, clock), ConfigError) << text;
  }
  EXPECT_THROW(make("emulated:exchange=real", clock), Unavailable);
}

TEST(Emulated, CopiesAreRealUnlessSwitchedOff) {
  VirtualClock clock;
  for (const bool copies : {true, false}) {
    const auto backend = make(copies ? "emulated" : "emulated:copy=none", clock);
    const auto device = backend->open(0);
    const Buffer from = device->allocate(64, MemoryKind::pinned);
    const Buffer to = device->allocate(64, MemoryKind::device);
    std::memset(from.bytes().data(), 7, 64);
    device->make_stream()->copy(to.bytes(), from.bytes());
    EXPECT_EQ(to.bytes()[63], copies ? std::byte{7} : std::byte{0});
  }
}

}  // namespace
}  // namespace penstock
