// SPDX-License-Identifier: Apache-2.0
// Measures three operations on a message of each format: writing it around a batch in a slot,
// reading and checking it (both cheap, and independent of its size), and reading it with the copy
// into a slot.
#include <benchmark/benchmark.h>

#include <vector>

#include "dataflow/clock.h"
#include "dataflow/host_device.h"
#include "feeders/remote/send/frame_memory.h"
#include "feeders/remote/send/outgoing_messages.h"
#include "feeders/remote/wire/batch_message.h"
#include "feeders/synthetic_pixels.h"

namespace penstock {
namespace {

constexpr BatchSpec kSpec{.images = 64, .image = {224, 224, 3}};

/// A batch that is sent from a slot in each iteration, and a slot to copy it to.
class Wire {
 public:
  explicit Wire(remote::MessageFormat format)
      : format_(format), messages_(make_outgoing(format, kSpec, clock_)) {
    SyntheticPixels().fill(batch_, kSpec.classes, 1, 0, 0);
  }
  ~Wire() { messages_->give_back(batch_); }

  remote::MessageFrames encode() {
    views_.clear();
    for (const auto& frame : messages_->batch(batch_, {}, {})) views_.emplace_back(frame.bytes);
    return views_;
  }
  remote::WireBatch read() { return reader_.read(format_, views_); }
  void drop() { messages_->give_back(batch_); }
  Batch& target() { return target_; }

 private:
  static Batch batch_in(const Buffer& slot) {
    return {.pixels = slot.bytes().first(kSpec.pixel_bytes()),
            .labels = {reinterpret_cast<std::int32_t*>(slot.bytes().data() + kSpec.pixel_bytes()),
                       static_cast<std::size_t>(kSpec.images)},
            .valid = kSpec.images};
  }

  const remote::MessageFormat format_;
  SteadyClock clock_;
  HostDevice host_{clock_};
  remote::FrameMemory memory_{host_};
  const Buffer slot_ = memory_.allocate(kSpec.bytes(), MemoryKind::host),
               copy_ = host_.allocate(kSpec.bytes(), MemoryKind::host);
  const Batch batch_ = batch_in(slot_);
  Batch target_ = batch_in(copy_);
  const std::unique_ptr<remote::OutgoingMessages> messages_;
  remote::BatchMessageReader reader_{kSpec};
  std::vector<std::span<const std::byte>> views_;
};

void encode(benchmark::State& state, remote::MessageFormat format) {
  Wire wire(format);
  for (auto _ : state) {
    benchmark::DoNotOptimize(wire.encode().data());
    wire.drop();
  }
  state.SetItemsProcessed(state.iterations());
}

void parse(benchmark::State& state, remote::MessageFormat format) {
  Wire wire(format);
  wire.encode();
  for (auto _ : state) benchmark::DoNotOptimize(wire.read().pixels.data());
  state.SetItemsProcessed(state.iterations());
}

void parse_and_copy(benchmark::State& state, remote::MessageFormat format) {
  Wire wire(format);
  wire.encode();
  for (auto _ : state) {
    remote::copy_batch(wire.read(), wire.target());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kSpec.bytes()));
}

using Format = remote::MessageFormat;
#define PENSTOCK_WIRE_BENCHMARK(function)                          \
  BENCHMARK_CAPTURE(function, zmq_op, Format::zmq_op);             \
  BENCHMARK_CAPTURE(function, pickle, Format::pickle);             \
  BENCHMARK_CAPTURE(function, msgpack, Format::msgpack);           \
  BENCHMARK_CAPTURE(function, numpy_frames, Format::numpy_frames); \
  BENCHMARK_CAPTURE(function, framed, Format::framed)
PENSTOCK_WIRE_BENCHMARK(encode);
PENSTOCK_WIRE_BENCHMARK(parse);
PENSTOCK_WIRE_BENCHMARK(parse_and_copy);

}  // namespace
}  // namespace penstock
