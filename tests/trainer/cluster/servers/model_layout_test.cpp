// SPDX-License-Identifier: Apache-2.0
// Tests how weights are cut into parts, and what servers are told about the parts.
#include <gtest/gtest.h>

#include <algorithm>

#include "dataflow/error.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/cluster/servers/model_layout.h"

namespace penstock {
namespace {

/// Tensors with these numbers of elements, each padded to a multiple of 16. Every second tensor
/// decays.
class Arena {
 public:
  explicit Arena(const std::vector<std::size_t>& counts, std::size_t running = 0) {
    std::size_t total = 0;
    for (const std::size_t count : counts) total += (count + 15) / 16 * 16;
    weights_.resize(total);
    running_.resize(running);
    set_.weights = set_.gradients = {weights_.data(), total};
    set_.running = {running_.data(), running};
    std::size_t first = 0;
    auto node = static_cast<NodeId>(counts.size());
    for (const std::size_t count : counts) {
      const Role role = set_.parameters.size() % 2 == 0 ? Role::weight : Role::scale;
      const Tensor tensor{weights_.data() + first, count};
      set_.parameters.push_back(
          {{.name = "w", .node = --node, .role = role, .shape = {}}, tensor, tensor});
      first += (count + 15) / 16 * 16;
    }
  }
  const ParameterSet& set() const { return set_; }

 private:
  std::vector<float> weights_, running_;
  ParameterSet set_;
};

/// Expects that every element of the tensors is in exactly one part, whose segments mark the
/// decaying elements.
void expect_whole(const cluster::PartPlan& plan, const Arena& arena, std::size_t part_bytes) {
  std::vector<int> seen(arena.set().weights.count), decays(seen.size());
  std::uint32_t key = 0;
  for (const cluster::Part& part : plan.parts) {
    EXPECT_EQ(part.key, key++);
    EXPECT_LE(part.count * sizeof(float), part_bytes);
    std::size_t at = part.first;
    for (const cluster::Segment& segment : part.segments) {
      for (std::uint32_t i = 0; i < segment.elements; ++i, ++at) {
        if (part.fixed) continue;
        ++seen[at];
        decays[at] = segment.decays ? 1 : 0;
      }
    }
    EXPECT_EQ(at, part.first + part.count);
  }
  for (const Parameter& parameter : arena.set().parameters) {
    const auto* const first = static_cast<const float*>(parameter.weight.data);
    const auto at = first - static_cast<const float*>(arena.set().weights.data);
    for (std::size_t i = 0; i < parameter.weight.count; ++i) {
      EXPECT_EQ(seen[static_cast<std::size_t>(at) + i], 1);
      EXPECT_EQ(decays[static_cast<std::size_t>(at) + i], parameter.spec.decays() ? 1 : 0);
    }
  }
}

TEST(ModelLayout, EveryElementIsInOnePartOfAnyPlan) {
  const Arena arena({3, 40, 17, 1, 200, 5}, 7);
  for (const std::size_t bytes : {4U, 60U, 256U, 1U << 20}) {
    for (const std::int32_t servers : {1, 2, 3}) {
      for (const Placement placement : {Placement::first, Placement::greedy, Placement::split}) {
        expect_whole(cluster::plan_parts(arena.set(), placement, servers, bytes), arena, bytes);
      }
      expect_whole(cluster::plan_partitions(arena.set(), servers, bytes), arena, bytes);
    }
  }
}

TEST(ModelLayout, EveryServerHasAPart) {
  const Arena small({3}), none({});
  for (const Arena* arena : {&small, &none}) {
    for (const cluster::PartPlan& plan :
         {cluster::plan_parts(arena->set(), Placement::greedy, 3, 1 << 20),
          cluster::plan_partitions(arena->set(), 3, 1 << 20)}) {
      for (const std::int32_t server : {0, 1, 2}) {
        EXPECT_TRUE(std::any_of(plan.parts.begin(), plan.parts.end(),
                                [&](const cluster::Part& part) { return part.server == server; }));
      }
    }
  }
}

TEST(ModelLayout, PartitionsSpreadBytes) {
  const Arena arena({100'000, 300'000, 50'000, 50'000});
  const cluster::PartPlan plan = cluster::plan_partitions(arena.set(), 2, 40'000);
  std::size_t loads[2] = {};
  for (const cluster::Part& part : plan.parts) loads[part.server] += part.count;
  EXPECT_NEAR(static_cast<double>(loads[0]), static_cast<double>(loads[1]), 10'000);
}

TEST(ModelLayout, IsReadAsItWasWritten) {
  const Arena arena({3, 40, 17}, 9);
  const cluster::PartPlan plan = cluster::plan_parts(arena.set(), Placement::greedy, 2, 64);
  for (const std::int32_t server : {0, 1}) {
    const std::string text = cluster::write_layout(
        {cluster::ServerRule::one_by_one, "momentum:momentum=0.5", plan.parts}, server);
    const cluster::ModelLayout read = cluster::parse_layout(cluster::bytes_of(text));
    EXPECT_EQ(read.rule, cluster::ServerRule::one_by_one);
    EXPECT_EQ(read.optimizer, "momentum:momentum=0.5");
    std::vector<cluster::Part> expected;
    for (cluster::Part part : plan.parts) {
      if (part.server != server) continue;
      part.first = 0;
      part.server = 0;
      expected.push_back(part);
    }
    EXPECT_EQ(read.parts, expected);
    for (std::size_t cut = 0; cut < text.size(); ++cut) {
      EXPECT_THROW(cluster::parse_layout(cluster::bytes_of(text).first(cut)), DataError) << cut;
    }
    EXPECT_THROW(cluster::parse_layout(cluster::bytes_of(text + "x")), DataError);
  }
}

TEST(ModelLayout, ServerMessagesAreReadAsTheyWereWritten) {
  const cluster::ServerHeader header{.kind = cluster::MessageKind::push,
                                     .key = 7,
                                     .task = 3,
                                     .step = 1'000'000'007,
                                     .length = 12,
                                     .learning_rate = 0.1F,
                                     .weight_decay = 0.2F,
                                     .gradient_clip = 0.3F,
                                     .gradient_scale = 0.4F,
                                     .value = 0.5,
                                     .version = 9};
  const auto bytes = cluster::to_bytes(header);
  const cluster::ServerHeader read = cluster::parse_header(bytes, 12);
  EXPECT_EQ(read.kind, header.kind);
  EXPECT_EQ(read.key, 7U);
  EXPECT_EQ(read.task, 3U);
  EXPECT_EQ(read.step, 1'000'000'007U);
  EXPECT_EQ(read.gradient_scale, 0.4F);
  EXPECT_EQ(read.value, 0.5);
  EXPECT_EQ(read.version, 9U);
  EXPECT_THROW(cluster::parse_header(bytes, 13), DataError);
  EXPECT_THROW(cluster::parse_header(std::span(bytes).first(63), 12), DataError);
  const std::string texts[] = {"", "a", "bc"};
  EXPECT_EQ(cluster::split_texts(cluster::bytes_of(cluster::join_texts(texts)), 3),
            std::vector<std::string>(std::begin(texts), std::end(texts)));
  EXPECT_THROW(cluster::split_texts(cluster::bytes_of(cluster::join_texts(texts)), 2), DataError);
  EXPECT_THROW(cluster::split_texts(cluster::bytes_of(cluster::join_texts(texts)), 4), DataError);
}

}  // namespace
}  // namespace penstock
