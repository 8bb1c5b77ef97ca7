// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: the same target over a few hundred thousand mutations of good
// messages, from a fixed seed. Sees little by itself; under address sanitizer it sees every stray
// read.
#include <gtest/gtest.h>

#include <cstring>

#include "dataflow/random.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/zmq_op_target.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

/// Batches of kFuzzSpec with labels of 32 and 64 bits, a scalar, and a tensor of eight dimensions.
std::vector<Bytes> corpus() {
  const BatchLayout layout(kFuzzSpec, kFuzzSpec.images);
  Bytes batch(layout.size());
  layout.write_headers(batch);

  Bytes wide(batch.begin(), batch.begin() + BatchLayout::kPixelsAt + 12);
  wide.resize(wide.size() + 20 + 16);
  const std::int32_t labels_shape[] = {2};
  write_tensor_header(std::span(wide).subspan(BatchLayout::kPixelsAt + 12), WireType::i64,
                      labels_shape);

  Bytes scalar(4 + 16 + 4);
  scalar[0] = std::byte{1};
  write_tensor_header(std::span(scalar).subspan(4), WireType::i32, {});

  Bytes deep(4 + 48 + 16);
  deep[0] = std::byte{1};
  const std::int32_t deep_shape[] = {1, 2, 1, 2, 1, 1, 1, 1};
  write_tensor_header(std::span(deep).subspan(4), WireType::f32, deep_shape);
  return {batch, wide, scalar, deep};
}

TEST(ZmqOpMutation, NothingIsReadOutsideTheMessage) {
  const std::vector<Bytes> seeds = corpus();
  EXPECT_TRUE(try_zmq_op(seeds[0]));
  EXPECT_TRUE(try_zmq_op(seeds[1]));
  EXPECT_FALSE(try_zmq_op(seeds[2]));
  EXPECT_FALSE(try_zmq_op(seeds[3]));
  std::size_t accepted = 0;
  constexpr std::size_t kMessages = 200'000;
  for (std::size_t i = 0; i < kMessages; ++i) {
    Random random(1, 0, i);
    Bytes bytes = seeds[random.below(seeds.size())];
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) mutate(bytes, random);
    // A block of exactly this size, so that a sanitizer sees one byte too many.
    const Bytes exact(bytes.begin(), bytes.end());
    accepted += try_zmq_op(exact) ? 1 : 0;
  }
  // Some mutations only touch pixels or labels.
  EXPECT_GT(accepted, kMessages / 1000);
  EXPECT_LT(accepted, kMessages / 2);
}

}  // namespace
}  // namespace penstock
