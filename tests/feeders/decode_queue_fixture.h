// SPDX-License-Identifier: Apache-2.0
// The queue feeder over real JPEG files; each file has one colour, which encodes its index.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dataflow/host_device.h"
#include "feeders/feeder.h"
#include "tests/support/advanced_clock.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/temp_folder.h"

namespace penstock {

inline constexpr int kFiles = 60, kClasses = 4;

class DecodeQueueTest : public testing::Test {
 protected:
  DecodeQueueTest() {
    for (int index = 0; index < kFiles; ++index) {
      // Four levels of each colour, far enough apart to survive compression.
      const auto level = [&](int digit) { return static_cast<std::uint8_t>(40 + 55 * digit); };
      folder_.write(name_of(index),
                    encode_jpeg(make_flat_image(30 + index, 70 - index, level(index / 16),
                                                level(index / 4 % 4), level(index % 4))));
    }
    data_.directory = folder_.path().string();
    data_.classes = kClasses;
  }

  /// Files are numbered in the order in which the source lists them.
  static std::string name_of(int index) {
    return "class" + std::to_string(index / (kFiles / kClasses)) + "/" +
           std::to_string(100 + index) + ".JPEG";
  }
  static int index_of(const std::byte* pixel) {
    const auto digit = [&](int c) { return (std::to_integer<int>(pixel[c]) - 40 + 27) / 55; };
    return digit(0) * 16 + digit(1) * 4 + digit(2);
  }

  std::unique_ptr<Feeder> make(std::string_view text, std::int32_t threads,
                               BadSamplePolicy policy = {}) {
    const FeederEntry& entry = find_entry(feeder_table(), "queue");
    const Options options(entry.name, entry.options, parse_component(text));
    return entry.make(FeederContext{.spec = spec_,
                                    .device = device_,
                                    .clock = clock_,
                                    .options = options,
                                    .data = data_,
                                    .probe = probe_,
                                    .on_bad_sample = policy,
                                    .threads = threads,
                                    .seed = data_.seed});
  }

  /// Runs `feeder`, and passes every batch to `read` until `read` returns false.
  template <typename Read>
  void run(Feeder& feeder, Read read) {
    BatchRing ring(spec_, 3, device_, MemoryKind::host, readers_, Order::relaxed, clock_);
    std::stop_source stop;
    std::jthread reader([&] {
      while (const ReadLease lease = ring.next(0, {})) {
        if (!read(lease.batch())) stop.request_stop();
      }
    });
    try {
      feeder.run(ring, stop.get_token());
    } catch (...) {
      ring.close();
      throw;
    }
    ring.close();
  }

  /// All pixels of the epochs, in the order of the batches.
  std::vector<std::byte> pixels_of(const std::unique_ptr<Feeder>& feeder) {
    std::vector<std::byte> pixels;
    run(*feeder, [&](const Batch& batch) {
      const auto valid = static_cast<std::size_t>(batch.valid) * spec_.row_bytes();
      pixels.insert(pixels.end(), batch.pixels.begin(),
                    batch.pixels.begin() + static_cast<std::ptrdiff_t>(valid));
      return true;
    });
    return pixels;
  }

  /// All pixels of one epoch, in order.
  std::vector<std::byte> pass(std::string_view text) {
    data_.order = Order::strict;
    data_.epochs = 1;
    return pixels_of(make(text, 2));
  }

  TempFolder folder_;
  DataPlan data_;
  BatchSpec spec_{.images = 8, .image = {32, 32, 3}, .classes = kClasses};
  AdvancedClock clock_;
  HostDevice device_{clock_};
  Device* readers_[1] = {&device_};
  Probe probe_;
};

}  // namespace penstock
