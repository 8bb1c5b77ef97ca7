// SPDX-License-Identifier: Apache-2.0
#include "feeders/synthetic_pixels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/random.h"
#include "feeders/feeder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

TEST(SyntheticPixels, AStopRequestEndsTheDrawingOfABatch) {
  std::vector<std::byte> pixels(std::size_t{20} << 20);
  Batch batch;
  batch.pixels = pixels;
  std::stop_source stop;
  stop.request_stop();
  SyntheticPixels().fill(batch, 10, 1, 0, 0, stop.get_token());
  EXPECT_EQ(pixels, std::vector<std::byte>(pixels.size())) << "left as it was";
  SyntheticPixels().fill(batch, 10, 1, 0, 0);
  std::vector<std::byte> at_once(pixels.size());
  Random(1, 0, 0).fill(at_once);
  EXPECT_EQ(pixels, at_once) << "the same bytes, whatever parts they are drawn in";
}

/// A feeder at work in a ring, until the object is destroyed.
class Feeding {
 public:
  static constexpr BatchSpec kSpec{.images = 4, .image = {128, 128, 3}, .classes = 1000};

  explicit Feeding(const std::string& text, const BatchSpec& spec = kSpec)
      : parts_(parse_component(text)),
        entry_(find_entry(feeder_table(), parts_.name)),
        options_(parts_.name, entry_.options, parts_),
        ring_(spec, 2, device_, MemoryKind::host, std::span(&reader_, 1), Order::relaxed, clock_),
        feeder_(entry_.make({.spec = spec,
                             .device = device_,
                             .clock = clock_,
                             .options = options_,
                             .probe = probe_,
                             .slots = 2})),
        thread_([this](const std::stop_token& stop) { run_to_end(*feeder_, ring_, stop); }) {}

  ReadLease next() {
    ReadLease lease = ring_.next(0, {});
    lease.await();
    return lease;
  }

 private:
  SteadyClock clock_;
  HostDevice device_{clock_};
  Device* const reader_ = &device_;
  const ComponentText parts_;
  const FeederEntry& entry_;
  const Options options_;
  Probe probe_;
  BatchRing ring_;
  const std::unique_ptr<Feeder> feeder_;
  std::jthread thread_;
};

std::array<double, 256> shares_of(std::span<const std::byte> pixels) {
  std::array<double, 256> shares{};
  for (const std::byte pixel : pixels) {
    shares[std::to_integer<std::size_t>(pixel)] += 1.0 / static_cast<double>(pixels.size());
  }
  return shares;
}

/// In bits per byte.
double entropy_of(std::span<const std::byte> pixels) {
  double entropy = 0;
  for (const double share : shares_of(pixels)) {
    if (share > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

TEST(SyntheticPixels, HaveTheEntropyThatWasAskedFor) {
  for (const char* feeder : {"cpu", "host", "gpu"}) {
    for (const double bits : {0.0, 0.25, 1.0, 4.0, 6.5, 7.9, 8.0}) {
      Feeding feeding(std::string(feeder) + ":entropy_bits=" + std::to_string(bits));
      const ReadLease lease = feeding.next();
      const std::span<const std::byte> pixels = lease.batch().pixels;
      EXPECT_NEAR(entropy_of(pixels), bits, 0.02) << feeder;
      // A compressor gains nothing from neighbours either: they differ as independent bytes do.
      std::vector<std::byte> differences;
      std::vector<std::byte> independent;
      for (std::size_t i = 0; i + 1 < pixels.size(); i += 2) {
        const auto value = [&](std::size_t at) { return std::to_integer<int>(pixels[at]); };
        differences.push_back(std::byte(value(i) - value(i + 1)));
        independent.push_back(std::byte(value(i) - value(pixels.size() - 1 - i)));
      }
      EXPECT_NEAR(entropy_of(differences), entropy_of(independent), 0.03) << feeder << " " << bits;
    }
  }
}

TEST(SyntheticPixels, OfEightBitsEqualTheDefault) {
  Feeding plain("cpu"), asked("cpu:entropy_bits=8");
  const ReadLease a = plain.next(), b = asked.next();
  EXPECT_TRUE(std::ranges::equal(a.batch().pixels, b.batch().pixels));
}

/// A normal distribution cut at 2 deviations has 0.8796 of its deviation, by
/// 1 - 4 phi(2) / (Phi(2) - Phi(-2)) for the variance.
TEST(SyntheticPixels, OfATruncatedNormalHaveItsMomentsAndBounds) {
  for (const char* feeder : {"cpu", "host", "gpu"}) {
    Feeding feeding(std::string(feeder) + ":pixels=truncated_normal");
    const ReadLease lease = feeding.next();
    const std::array<double, 256> shares = shares_of(lease.batch().pixels);
    double mean = 0, square = 0;
    for (std::size_t value = 0; value < shares.size(); ++value) {
      mean += shares[value] * static_cast<double>(value);
      square += shares[value] * static_cast<double>(value * value);
      if (value < 7 || value > 247) {
        EXPECT_EQ(shares[value], 0) << value;
      }
    }
    const double density = std::exp(-2.0) / std::sqrt(2 * 3.14159265358979),
                 inside = std::erf(std::sqrt(2.0));
    EXPECT_NEAR(mean, 127, 0.5);
    EXPECT_NEAR(std::sqrt(square - mean * mean), 60 * std::sqrt(1 - 4 * density / inside), 0.3);
    // Near the middle the density is that of the whole distribution, divided by what lies inside.
    const double at_mean = 1 / (60 * std::sqrt(2 * 3.14159265358979) * inside);
    double middle = 0;
    for (std::size_t value = 122; value <= 132; ++value) middle += shares[value];
    EXPECT_NEAR(middle / 11, at_mean, 0.03 * at_mean);
  }
}

TEST(SyntheticPixels, RefuseOptionsThatContradictEachOtherOrMeanNothing) {
  const auto refusal = [](const std::string& text) {
    return thrown_by<ConfigError>([&] { Feeding feeding(text); });
  };
  EXPECT_TRUE(says(refusal("cpu:entropy_bits=8.1"), "expected 0 to 8 bits per byte"));
  EXPECT_TRUE(says(refusal("host:entropy_bits=-1"), "expected 0 to 8 bits per byte"));
  EXPECT_TRUE(says(refusal("gpu:pixels=normal"), "expected uniform or truncated_normal"));
  EXPECT_TRUE(says(refusal("cpu:pixels=truncated_normal,entropy_bits=4"), "leave one of them out"));
}

TEST(GpuFeeder, RedrawsLabelsForEveryBatchIfAskedTo) {
  for (const bool redraws : {false, true}) {
    Feeding feeding(redraws ? "gpu:labels=redrawn" : "gpu");
    std::set<std::vector<std::int32_t>> labels;
    std::set<std::vector<std::byte>> pixels;
    for (int batch = 0; batch < 12; ++batch) {
      const ReadLease lease = feeding.next();
      const Batch& read = lease.batch();
      if (batch < 2) continue;  // the slots are published as they were filled
      labels.emplace(read.labels.begin(), read.labels.end());
      pixels.emplace(read.pixels.begin(), read.pixels.end());
      for (const std::int32_t label : read.labels) {
        EXPECT_GE(label, 0);
        EXPECT_LT(label, Feeding::kSpec.classes);
      }
    }
    EXPECT_EQ(pixels.size(), 2U) << "those of the two slots";
    EXPECT_EQ(labels.size(), redraws ? 10U : 2U);
  }
}

}  // namespace
}  // namespace penstock
