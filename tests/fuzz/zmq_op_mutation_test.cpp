// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: the same target over a few hundred thousand mutations of good
// messages, from a fixed seed. Sees little by itself; under address sanitizer it sees every stray
// read.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/zmq_op_target.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(ZmqOpMutation, NothingIsReadOutsideTheMessage) {
  const std::vector<Bytes> seeds = zmq_op_corpus();
  EXPECT_TRUE(try_zmq_op(seeds[0]));
  EXPECT_TRUE(try_zmq_op(seeds[1]));
  EXPECT_FALSE(try_zmq_op(seeds[2]));
  EXPECT_FALSE(try_zmq_op(seeds[3]));
  std::size_t accepted = 0;
  constexpr std::size_t kMessages = 200'000;
  for_each_mutation(seeds, kMessages,
                    [&](const Bytes& exact) { accepted += try_zmq_op(exact) ? 1 : 0; });
  // Some mutations only touch pixels or labels.
  EXPECT_GT(accepted, kMessages / 1000);
  EXPECT_LT(accepted, kMessages / 2);
}

}  // namespace
}  // namespace penstock
