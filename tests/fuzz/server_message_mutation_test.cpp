// SPDX-License-Identifier: Apache-2.0
// Mutations of good messages to a parameter server, from a fixed seed: its parsers read nothing
// outside of them, and a server that gets them from a worker or a stranger lives on, and trains.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/server_message_target.h"
#include "tests/support/server_script.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

const std::vector<float> kWeights = {1, 2, 3, 4};

Bytes mutated(const std::vector<Bytes>& seeds, Random& random) {
  Bytes bytes = seeds[random.below(seeds.size())];
  for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) mutate(bytes, random);
  // A block of exactly this size, so that a sanitizer sees one byte too many.
  return {bytes.begin(), bytes.end()};
}

TEST(ServerMessageMutation, NothingIsReadOutsideTheMessage) {
  const std::vector<Bytes> seeds = server_message_corpus();
  for (const Bytes& seed : seeds) EXPECT_TRUE(try_server_message(seed));
  std::size_t accepted = 0;
  constexpr std::size_t kMessages = 100'000;
  for (std::size_t i = 0; i < kMessages; ++i) {
    Random random(1, 0, i);
    accepted += try_server_message(mutated(seeds, random)) ? 1 : 0;
  }
  // Some mutations only touch weights, numbers or texts.
  EXPECT_GT(accepted, kMessages / 1000);
  EXPECT_LT(accepted, kMessages / 2);
}

TEST(ServerMessageMutation, AServerLivesOnAndTrains) {
  const std::vector<Bytes> seeds = server_message_corpus();
  ServerScript script(2);
  script.begin(ServerRule::on_arrival, "sgd", kWeights);
  for (std::size_t i = 0; i < 20'000; ++i) {
    Random random(2, 0, i);
    const Bytes bytes = mutated(seeds, random);
    const std::size_t cut = std::min(bytes.size(), kHeaderBytes);
    const std::string from = random.below(2) == 0 ? "stranger" : ServerScript::peer(1);
    script.raw(from, std::span(bytes).first(cut), text_of(std::span(bytes).subspan(cut)),
               random.below(10) == 0 ? random.below(5)
               : bytes.size() > cut  ? 2
                                     : 1);
    script.sent.clear();
    script.said.clear();
  }
  EXPECT_GT(script.server.rejected(), 10'000);
  script.push(0, 0, {0, 0, 0, 0}, 1, 1);
  ASSERT_EQ(script.take(0).size(), 1U);
}

}  // namespace
}  // namespace penstock
