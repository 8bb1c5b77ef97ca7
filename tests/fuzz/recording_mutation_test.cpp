// SPDX-License-Identifier: Apache-2.0
// Mutations of good results, from a fixed seed: each is replayed with times that a device can take,
// or refused by an error of ours.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/error.h"
#include "tests/fuzz/mutation.h"
#include "trainer/backends/emulated/recording.h"

namespace penstock {
namespace {

constexpr std::string_view kRun = R"({"schema": 2, "config": {"fake_location": "gpu",
 "model": "resnet50", "device": "cpu", "batch_size": 32, "num_warmup_batches": 10},
 "step_ms": [9.5, 9.5, 9.25, 9.5, 9.5, 9.5, 9.5, 9.5, 9.5, 9.5, 9.5, 9.5],
 "device_idle_ms": [0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]})";

std::string sweep() {
  const std::string run(kRun);
  const std::string config = run.substr(run.find("{", 1), run.find("}") + 1 - run.find("{", 1));
  const std::string row = "{\"config\": " + config + ", \"repetitions\": [" + run + "]}";
  return "{\"schema\": 2, \"sweep\": {}, \"runs\": [" + row + "]}";
}

bool try_recording(std::string_view text) {
  try {
    const emulated::Recording recording = emulated::parse_recording(text, "", "results.json");
    EXPECT_GE(recording.step_ms.size(), 10U);
    EXPECT_GT(recording.batch, 0);
    EXPECT_GT(recording.mean_step_ms(), 0);
    for (const double ms : recording.step_ms) EXPECT_TRUE(ms >= 0 && ms <= 86'400e3) << ms;
    return true;
  } catch (const Error&) {
    return false;
  }
}

void change(std::vector<std::byte>& bytes, Random& random) {
  if (bytes.empty() || random.below(2) == 0) return mutate(bytes, random);
  constexpr std::string_view kSigns = "0123456789.-e";  // what numbers are made of
  std::byte& byte = bytes[random.below(bytes.size())];
  const bool digit = byte >= std::byte{'0'} && byte <= std::byte{'9'};
  if (digit) byte = static_cast<std::byte>(kSigns[random.below(kSigns.size())]);
}

TEST(RecordingMutation, EveryTextIsReplayedOrRefused) {
  for (const std::string& seed : {std::string(kRun), sweep()}) {
    ASSERT_TRUE(try_recording(seed));
    const std::span<const std::byte> good = std::as_bytes(std::span(seed));
    std::size_t accepted = 0;
    constexpr std::size_t kTexts = 20'000;
    for (std::size_t i = 0; i < kTexts; ++i) {
      Random random(3, 0, i);
      std::vector<std::byte> bytes(good.begin(), good.end());
      for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
        change(bytes, random);
      }
      // A block of exactly this size, so that a sanitizer sees one byte too many.
      std::vector<char> exact(bytes.size());
      if (!bytes.empty()) std::memcpy(exact.data(), bytes.data(), bytes.size());
      accepted += try_recording({exact.data(), exact.size()}) ? 1 : 0;
    }
    // Some mutations only touch a digit, or nothing.
    EXPECT_GT(accepted, kTexts / 100);
    EXPECT_LT(accepted, kTexts / 2);
  }
}

}  // namespace
}  // namespace penstock
