// SPDX-License-Identifier: Apache-2.0
// Tests every algorithm of the table: sums with known answers, and the numbers of steps and bytes
// that it declares.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/entry.h"
#include "dataflow/host_device.h"
#include "tests/support/entry_names.h"
#include "tests/support/rank_threads.h"
#include "tests/support/update_ranks.h"
#include "tests/support/virtual_clock.h"
#include "trainer/collectives/link_collective.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::array<std::size_t, 10> kSizes = {0, 1, 2, 3, 7, 8, 63, 1000, 4099, 65537};
constexpr std::int32_t kMostRanks = 8;

/// Small whole numbers: their sums are exact in any order.
float element(std::int32_t rank, std::size_t i) {
  return static_cast<float>((rank + 1) * (static_cast<std::int32_t>(i % 89) + 1));
}
float sum(std::int32_t ranks, std::size_t i) {
  return static_cast<float>(ranks * (ranks + 1) / 2 * (static_cast<std::int32_t>(i % 89) + 1));
}

std::vector<float> elements(std::int32_t rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element(rank, i);
  return values;
}

void expect_sums(const std::vector<float>& values, std::int32_t ranks, const std::string& where) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], sum(ranks, i)) << where << ", element " << i << " of " << values.size();
  }
}

class AllReduce : public testing::TestWithParam<const collectives::AllReduceEntry*> {};

TEST_P(AllReduce, SumsAnyCountOverAnyNumberOfRanks) {
  SteadyClock clock;
  for (std::int32_t ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (const std::int32_t local : {1, 2, 3, 8}) {
      collectives::ThreadLinks links(ranks, clock, 1min, {});
      run_ranks(ranks, [&](std::int32_t rank) {
        const std::unique_ptr<collectives::Link> link = links.join(rank);
        collectives::Workspace workspace{.local_ranks = local};
        for (const std::size_t count : kSizes) {
          std::vector<float> values = elements(rank, count);
          GetParam()->all_reduce(*link, values, workspace);
          expect_sums(values, ranks, std::to_string(ranks) + " ranks, " + std::to_string(local));
        }
      });
    }
  }
}

TEST_P(AllReduce, LeavesTheSameBitsOnAllRanksWhereTheOrderMatters) {
  SteadyClock clock;
  constexpr std::size_t kCount = 1000;
  for (const std::int32_t ranks : {3, 5, 8}) {
    collectives::ThreadLinks links(ranks, clock, 1min, {});
    std::vector<std::vector<float>> values(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](std::int32_t rank) {
      const std::unique_ptr<collectives::Link> link = links.join(rank);
      std::vector<float>& mine = values[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < kCount; ++i) {
        mine.push_back(1.0F / static_cast<float>((i + 3) * static_cast<std::size_t>(rank + 1)));
      }
      collectives::Workspace workspace{.local_ranks = 2};
      GetParam()->all_reduce(*link, mine, workspace);
    });
    for (const std::vector<float>& other : values) {
      EXPECT_EQ(std::memcmp(other.data(), values[0].data(), kCount * sizeof(float)), 0) << ranks;
    }
  }
}

/// Counts the messages and bytes of a link. Each message takes a millisecond of simulated time.
class MeteredLink final : public collectives::Link {
 public:
  MeteredLink(std::unique_ptr<collectives::Link> link, Clock& clock)
      : link_(std::move(link)), clock_(clock) {}
  World world() const noexcept override { return link_->world(); }
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override {
    link_->send_receive(to, sent, from, received);
    sent_ += sent.size();
    received_ += received.size();
    if (!sent.empty() || !received.empty()) clock_.sleep_until(clock_.now() + 1ms);
  }
  double most_bytes() const { return static_cast<double>(std::max(sent_, received_)); }

 private:
  const std::unique_ptr<collectives::Link> link_;
  Clock& clock_;
  std::size_t sent_ = 0, received_ = 0;
};

/// The measured cost of the algorithm for a tensor of `count` elements.
collectives::ExchangeCost measured_cost(const collectives::AllReduceEntry& entry,
                                        std::int32_t ranks, std::int32_t local, std::size_t count) {
  VirtualClock clock;
  const Time begin = clock.now();
  collectives::ThreadLinks links(ranks, clock, 1h, {});
  std::vector<collectives::ExchangeCost> costs(static_cast<std::size_t>(ranks));
  run_ranks(
      ranks,
      [&](std::int32_t rank) {
        MeteredLink link(links.join(rank), clock);
        std::vector<float> values = elements(rank, count);
        collectives::Workspace workspace{.local_ranks = local};
        entry.all_reduce(link, values, workspace);
        costs[static_cast<std::size_t>(rank)] = {(clock.now() - begin) / 1ms, link.most_bytes()};
      },
      &clock);
  collectives::ExchangeCost all;
  for (const collectives::ExchangeCost& cost : costs) {
    all.steps = std::max(all.steps, cost.steps);
    all.bytes = std::max(all.bytes, cost.bytes);
  }
  return all;
}

TEST_P(AllReduce, TakesTheStepsAndBytesThatItSays) {
  constexpr std::size_t kCount = 840;  // a multiple of 1 to 8
  for (std::int32_t ranks = 2; ranks <= kMostRanks; ++ranks) {
    for (const std::int32_t local : {1, 2, 3, 8}) {
      const collectives::ExchangeCost measured = measured_cost(*GetParam(), ranks, local, kCount);
      const collectives::ExchangeCost said =
          GetParam()->cost({.ranks = ranks, .local_ranks = local, .bytes = kCount * sizeof(float)});
      EXPECT_EQ(measured.steps, said.steps) << ranks << " ranks, groups of " << local;
      EXPECT_NEAR(measured.bytes, said.bytes, 0.01) << ranks << " ranks, groups of " << local;
    }
  }
}

/// Positive numbers with many digits; sums of 8 are below 2^10.
float fraction(std::int32_t rank, std::size_t i) {
  return static_cast<float>(rank + 1) * 100.0F / static_cast<float>(i % 977 + 7);
}

TEST_P(AllReduce, On16BitsAgreesOnSumsThatAreRoundedNoMoreThanOncePerRank) {
  SteadyClock clock;
  HostDevice device(clock);
  for (const WireFormat wire : {WireFormat::f16, WireFormat::bf16}) {
    for (const std::int32_t ranks : {2, 3, 5, 8}) {
      const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device);
      collectives::LinkGroup group(
          devices, clock, 1min, {},
          {.plan = {{.algorithm = GetParam(), .shards = 2}}, .local_ranks = 2, .wire = wire});
      // A sum is rounded once per rank on its way and once at its end, plus the roundings of f32.
      const double bound =
          std::pow(1 + unit_roundoff(wire), ranks + 1) * std::pow(1 + 0x1p-24, ranks) - 1;
      for (const std::size_t count : {1U, 2U, 7U, 1000U, 4099U}) {
        std::vector<std::vector<float>> values(static_cast<std::size_t>(ranks));
        run_ranks(ranks, [&](std::int32_t rank) {
          std::vector<float>& mine = values[static_cast<std::size_t>(rank)];
          for (std::size_t i = 0; i < count; ++i) mine.push_back(fraction(rank, i));
          const std::unique_ptr<Stream> stream = device.make_stream();
          group.join(rank)->all_reduce_sum({mine.data(), count}, *stream);
        });
        for (std::size_t i = 0; i < count; ++i) {
          double exact = 0;
          for (std::int32_t rank = 0; rank < ranks; ++rank) exact += fraction(rank, i);
          ASSERT_NEAR(values[0][i], exact, bound * exact) << ranks << " ranks, element " << i;
        }
        for (const std::vector<float>& other : values) {
          ASSERT_EQ(std::memcmp(other.data(), values[0].data(), count * sizeof(float)), 0) << ranks;
        }
      }
    }
  }
}

/// The weight of a single replica of the global batch, in double, and the sum of the lengths of its
/// steps. The length counts the size of every rank's gradient.
struct Reference {
  double weight, lengths = 0;
};
Reference one_replica(std::int32_t ranks, std::int32_t steps, std::size_t element) {
  Reference result{quadratic_start(0, element)};
  for (std::int32_t step = 0; step < steps; ++step) {
    double mean = 0, size = 0;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const double gradient = quadratic_gradient(result.weight, rank, step, element);
      mean += gradient / ranks;
      size += std::abs(gradient) / ranks;
    }
    result.weight -= UpdateRanks::kRate * mean;
    result.lengths += UpdateRanks::kRate * size;
  }
  return result;
}

TEST_P(AllReduce, MakesOneReplicaOfTheGlobalBatchOnAnyWire) {
  constexpr std::int32_t kSteps = 8;
  SteadyClock clock;
  HostDevice device(clock);
  for (const WireFormat wire : {WireFormat::f32, WireFormat::f16, WireFormat::bf16}) {
    for (const std::int32_t ranks : {2, 3, 4}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::string(to_string(wire)));
      const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device);
      collectives::LinkGroup group(
          devices, clock, 1min, {},
          {.plan = {{.algorithm = GetParam()}}, .local_ranks = 2, .wire = wire});
      UpdateRanks run({group, nullptr, 0, ranks}, "replicated", clock);
      run.steps(kSteps);
      // Each step's gradients have the rounding errors of the wire and of f32. The quadratic
      // reduces earlier errors.
      const double off = std::pow(1 + unit_roundoff(wire), ranks + 1) - 1 + 0x1p-20;
      for (std::size_t i = 0; i < kQuadraticElements; ++i) {
        const Reference single = one_replica(ranks, kSteps, i);
        EXPECT_NEAR(run.weights(0)[i], single.weight, off * (single.lengths + 1)) << i;
      }
      for (std::int32_t rank = 1; rank < ranks; ++rank) {
        EXPECT_EQ(run.weights(rank), run.weights(0)) << rank;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, AllReduce, testing::ValuesIn(collectives::all_reduce_table().entries),
    [](const testing::TestParamInfo<const collectives::AllReduceEntry*>& entry) {
      return test_name(entry.param->name);
    });

TEST(CompactLink, MovesHalfTheBytes) {
  SteadyClock clock;
  collectives::ThreadLinks links(2, clock, 1min, {});
  run_ranks(2, [&](std::int32_t rank) {
    MeteredLink metered(links.join(rank), clock);
    collectives::CompactLink link(metered, WireFormat::f16);
    std::vector<float> values = elements(rank, 1000);
    collectives::Workspace workspace;
    find_entry(collectives::all_reduce_table(), "ring").all_reduce(link, values, workspace);
    EXPECT_EQ(metered.most_bytes(), 1000 * 2);
    expect_sums(values, 2, "fp16");  // whole numbers below 2048 are exact
  });
}

TEST(LinkCollective, CountsTheSumsThatOverflow) {
  SteadyClock clock;
  HostDevice device(clock);
  Device* const devices[] = {&device, &device, &device};
  Counter nonfinite;
  collectives::LinkGroup group(devices, clock, 1min, {},
                               {.wire = WireFormat::f16, .nonfinite = &nonfinite});
  EXPECT_EQ(group.how(),
            "tree up to 4096 elements, ring beyond, in messages between threads of fp16");
  run_ranks(3, [&](std::int32_t rank) {
    std::vector<float> values(100, 1);
    values[7] = 30000;  // the sum of three overflows fp16
    const std::unique_ptr<Stream> stream = device.make_stream();
    group.join(rank)->all_reduce_sum({values.data(), values.size()}, *stream);
    EXPECT_EQ(values[7], std::numeric_limits<float>::infinity());
    EXPECT_EQ(values[8], 3);
  });
  EXPECT_EQ(nonfinite.value(), 1);
}

}  // namespace
}  // namespace penstock
