// SPDX-License-Identifier: Apache-2.0
// Measures three operations on the zmq_op message: parsing and checking it (cheap, and independent
// of its size), the same with the copy into a slot, and writing its headers.
#include <benchmark/benchmark.h>

#include <vector>

#include "dataflow/random.h"
#include "feeders/remote/wire/zmq_op.h"

namespace penstock {
namespace {

constexpr BatchSpec kSpec{.images = 64, .image = {224, 224, 3}};

std::vector<std::byte> make_message() {
  const remote::BatchLayout layout(kSpec, kSpec.images);
  std::vector<std::byte> message(layout.size());
  Random(1).fill(std::span(message).subspan(remote::BatchLayout::kPixelsAt, kSpec.pixel_bytes()));
  layout.write_headers(message);  // the labels are all 0
  return message;
}

void zmq_op_parse(benchmark::State& state) {
  const std::vector<std::byte> message = make_message();
  for (auto _ : state) {
    const remote::WireBatch batch = remote::as_batch(remote::parse_zmq_op(message), kSpec);
    benchmark::DoNotOptimize(batch.pixels.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(zmq_op_parse);

void zmq_op_parse_and_copy(benchmark::State& state) {
  const std::vector<std::byte> message = make_message();
  std::vector<std::byte> pixels(kSpec.pixel_bytes());
  std::vector<std::int32_t> labels(static_cast<std::size_t>(kSpec.images));
  Batch slot;
  slot.pixels = pixels;
  slot.labels = labels;
  for (auto _ : state) {
    remote::copy_batch(remote::as_batch(remote::parse_zmq_op(message), kSpec), slot);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kSpec.bytes()));
}
BENCHMARK(zmq_op_parse_and_copy);

void zmq_op_encode(benchmark::State& state) {
  std::vector<std::byte> message = make_message();
  for (auto _ : state) {
    remote::BatchLayout(kSpec, kSpec.images).write_headers(message);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(zmq_op_encode);

}  // namespace
}  // namespace penstock
