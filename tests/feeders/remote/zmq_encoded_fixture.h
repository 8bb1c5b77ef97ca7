// SPDX-License-Identifier: Apache-2.0
// Image files over real sockets: the data set of the queue tests, sent by a Sender or by hand,
// and the consumer that decodes it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "feeders/image_source.h"
#include "feeders/remote/send/sender.h"
#include "tests/feeders/decode_queue_fixture.h"
#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/support/framed_messages.h"

namespace penstock {

class ZmqEncoded : public DecodeQueueTest {
 protected:
  ZmqEncoded() {
    data_.order = Order::strict;
    data_.epochs = 1;
  }

  FeederContext context(const Options& options, BadSamplePolicy policy = {}) {
    return {.spec = spec_,
            .device = device_,
            .clock = clock_,
            .options = options,
            .data = data_,
            .probe = probe_,
            .on_bad_sample = policy,
            .timeout = std::chrono::seconds(20),
            .threads = 2,
            .seed = data_.seed};
  }

  /// Sends an epoch of the source, `images` per message, unless stopped.
  void serve(std::size_t images, const std::string& text = "queue",
             remote::ZmqSocketOptions::Role role = remote::ZmqSocketOptions::Role::push,
             const std::stop_token& stop = {}, bool checksum = false) {
    const FeederEntry& entry = find_entry(feeder_table(), "queue");
    const Options options(entry.name, entry.options, parse_component(text));
    Probe probe;
    const std::unique_ptr<Source> source = make_image_source(context(options));
    remote::Sender push(
        remote::make_file_supply(*source, {.images = images, .batches = 3, .checksum = checksum},
                                 clock_, probe),
        net::parse_endpoint(endpoint_), {.role = role, .bind = false, .hwm = 2}, clock_, probe);
    push.run({.timeout = std::chrono::seconds(20)}, stop);
    if (!stop.stop_requested()) {
      EXPECT_EQ(probe.values().at("images_sent"), kFiles);
    }
  }

  std::unique_ptr<Feeder> consumer(const std::string& more, BadSamplePolicy policy = {},
                                   Nanoseconds timeout = std::chrono::seconds(20)) {
    const FeederEntry& entry = find_entry(feeder_table(), "zmq-consume");
    const Options options(entry.name, entry.options,
                          parse_component("zmq-consume:endpoint=" + endpoint_ + more));
    FeederContext all = context(options, policy);
    all.timeout = timeout;
    return entry.make(all);
  }

  /// The consumer's pixels of all whole batches in `images` images.
  std::vector<std::byte> consume(Feeder& feeder, std::int32_t images) {
    std::vector<std::byte> pixels;
    std::int32_t left = images / spec_.images;
    run(feeder, [&](const Batch& batch) {
      if (left-- > 0) pixels.insert(pixels.end(), batch.pixels.begin(), batch.pixels.end());
      return left > 0;
    });
    return pixels;
  }

  const TempFolder socket_folder_;
  const std::string endpoint_ = "ipc://" + (socket_folder_ / "feed").native();
};

inline std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A batch of `good` flat images; `bad` entries that are no images follow the first one.
inline FrameList batch_of(int good, int bad, std::uint64_t sequence = 0, std::uint64_t before = 0) {
  std::vector<std::string> files;
  for (int i = 0; i < good; ++i)
    files.push_back(text_of(encode_jpeg(make_flat_image(40, 40, 9, 9, 9))));
  for (int i = 0; i < bad; ++i) files.insert(files.begin() + 1, "no image");
  const std::vector<std::string_view> views(files.begin(), files.end());
  remote::FramedHeader header = jpeg_header(static_cast<std::uint32_t>(files.size()), 7, sequence);
  header.images_before = before;
  return framed_message(header, jpeg_payload(views, std::vector<std::int32_t>(files.size(), 1)));
}

}  // namespace penstock
