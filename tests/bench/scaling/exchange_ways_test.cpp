// SPDX-License-Identifier: Apache-2.0
// Exchanges of gradients without training: the exchanged data, and known times.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/config/exchange_rules.h"
#include "bench/scaling/exchange/exchange_report.h"
#include "bench/scaling/exchange/exchange_run.h"
#include "bench/scaling/exchange/exchange_ways.h"
#include "dataflow/error.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"
#include "trainer/collectives/link_collective.h"
#include "trainer/collectives/threads.h"
#include "trainer/model.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

std::vector<std::size_t> sizes_of(std::string_view model) {
  const ModelEntry& entry = find_entry(model_table(), model);
  return scaling::gradient_sizes(build_graph(entry, entry.image, entry.classes));
}

TEST(GradientBuckets, ResNet50HasAllItsGradientsFromTheLastToTheFirst) {
  const std::vector<std::size_t> sizes = sizes_of("resnet50");
  EXPECT_EQ(sizes.size(), 161U);
  EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), 25'557'032U);
  EXPECT_EQ(sizes[0], 1000U) << "the bias of the last layer";
  EXPECT_EQ(sizes[1], 2048U * 1000U);
  EXPECT_EQ(sizes.back(), 7U * 7U * 3U * 64U) << "the first convolution";
}

TEST(GradientBuckets, AreTheBucketsOfARun) {
  const std::vector<std::size_t> sizes{1, 2, 3, 10, 1, 1};
  EXPECT_EQ(scaling::bucket_sizes(sizes, {.first_bytes = 1, .bytes = 1}), sizes);
  EXPECT_EQ(scaling::bucket_sizes(sizes, {.first_bytes = 0, .bytes = 12}),
            (std::vector<std::size_t>{3, 3, 10, 2}));
  EXPECT_EQ(scaling::bucket_sizes(sizes, {.bytes = 0}), (std::vector<std::size_t>{18}));
  EXPECT_EQ(scaling::bucket_sizes(sizes, {.pieces = 2}), (std::vector<std::size_t>{9, 9}));
}

TEST(ExchangeRules, TheChoiceIsTheConfigurations) {
  RunConfig config;
  EXPECT_FALSE(chooses_exchange(config));
  EXPECT_EQ(exchange_choice(config, 4, 4, nullptr).method, collectives::ExchangeMethod::fastest);
  EXPECT_EQ(exchange_choice(config, 4, 4, nullptr).local_ranks, 2) << "half of one host's";
  EXPECT_EQ(exchange_choice(config, 8, 4, nullptr).local_ranks, 4) << "those of a host";
  config.all_reduce_spec = "pscpu:2k:xring#2";
  config.gradient_wire = "bf16";
  EXPECT_TRUE(chooses_exchange(config));
  const collectives::ExchangeChoice choice = exchange_choice(config, 4, 2, nullptr);
  EXPECT_EQ(choice.method, collectives::ExchangeMethod::links);
  EXPECT_EQ(choice.wire, WireFormat::bf16);
  EXPECT_EQ(
      collectives::how_links_exchange(choice, "between ranks"),
      "gather-add up to 2048 elements, ring in 2 pieces beyond, in messages between ranks of bf16");
}

TEST(ExchangeRules, WhatNothingAllReducesIsRefused) {
  RunConfig config;
  config.gradient_wire = "fp16";
  for (const char* update : {"replicated", "horovod", "sync_sgd", "replicated:consistency=relaxed",
                             "collective_all_reduce"}) {
    config.variable_update = update;
    EXPECT_NO_THROW(refuse_unfit_exchange(config)) << update;
  }
  for (const char* update : {"parameter_server", "independent", "sma", "async-sgd"}) {
    config.variable_update = update;
    EXPECT_THROW(refuse_unfit_exchange(config), ConfigError) << update;
  }
  config.variable_update = "replicated";
  config.device = "gpu";
  EXPECT_NO_THROW(refuse_unfit_exchange(config));
  EXPECT_EQ(exchange_spec(config).wire, WireFormat::f16);
}

/// The error message for this spec on this device; empty: it is accepted.
std::string refusal_of(const std::string& spec, const std::string& device) {
  RunConfig config;
  config.all_reduce_spec = spec;
  config.device = device;
  try {
    refuse_unfit_exchange(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  EXPECT_EQ(exchange_spec(config).nccl, spec == "nccl");
  return {};
}

TEST(ExchangeRules, NcclIsOfGpusAndOtherAlgorithmsAreOfOtherDevices) {
  EXPECT_EQ(refusal_of("nccl", "gpu:replicas=1"), "");
  for (const char* spec : {"nccl", "pscpu:2k:nccl", "nccl#2"}) {
    EXPECT_EQ(refusal_of(spec, "cpu"),
              "--all-reduce-spec is '" + std::string(spec) +
                  "', and NCCL exchanges the memory of GPUs, with --device gpu, only; use xring");
  }
  for (const char* spec : {"nccl/xring", "nccl/rechd", "nccl/pscpu", "xring", "pscpu:32k:xring"}) {
    EXPECT_EQ(refusal_of(spec, "cpu"), "");
    EXPECT_EQ(refusal_of(spec, "gpu"), "--all-reduce-spec is '" + std::string(spec) +
                                           "', which is for devices that use host memory, but "
                                           "--device is gpu; use nccl, or leave it out");
  }
  EXPECT_THROW(scaling::exchange_ways({.all_reduce_spec = "nccl"}), ConfigError)
      << "ranks have no GPUs";
}

TEST(ExchangeWays, AllAreTheSharedMemoryAndEveryAlgorithm) {
  const std::vector<scaling::ExchangeWay> ways =
      scaling::exchange_ways({.all_reduce_spec = "pscpu:2k:xring#2"});
  ASSERT_EQ(ways.size(), collectives::all_reduce_table().entries.size() + 2);
  EXPECT_EQ(ways.front().name, "shared-memory");
  EXPECT_FALSE(ways.front().plan);
  EXPECT_EQ(ways[1].name, collectives::all_reduce_table().entries.front()->name);
  EXPECT_EQ(ways.back().name, "pscpu:2k:xring#2");
  ASSERT_EQ(ways.back().plan->size(), 2U);
  EXPECT_EQ(ways.back().plan->front().max_elements, 2048U);
  EXPECT_EQ(ways.back().plan->back().shards, 2);
}

TEST(ExchangeWays, AListNamesEachOnceInAnySpelling) {
  const std::vector<scaling::ExchangeWay> ways =
      scaling::exchange_ways({.algorithms = "Ring,halving_doubling,ring,shared_memory"});
  ASSERT_EQ(ways.size(), 3U);
  EXPECT_EQ(ways[0].name, "ring");
  EXPECT_EQ(ways[1].name, "halving-doubling");
  EXPECT_EQ(ways[2].name, "shared-memory");
  EXPECT_THROW(scaling::exchange_ways({.algorithms = "rings"}), ConfigError);
  EXPECT_THROW(scaling::exchange_ways({.algorithms = "mpi"}), ConfigError) << "ranks are threads";
}

TEST(ExchangeWays, TheCostIsThatOfAllBucketsInAllTheirPieces) {
  scaling::ExchangeWay way =
      scaling::exchange_ways({.algorithms = "shared-memory", .all_reduce_spec = "pscpu:10:xring#2"})
          .back();
  // With 4 ranks: 10 elements to and from rank 0 in 6 steps, then 2 pieces of 40 around the ring.
  const collectives::ExchangeCost cost =
      scaling::exchange_cost(way, std::vector<std::size_t>{10, 80}, 4, 2);
  EXPECT_EQ(cost.steps, 6 + 2 * 6);
  EXPECT_DOUBLE_EQ(cost.bytes, 3 * 40 + 2 * (1.5 * 160));
  way.wire = WireFormat::f16;
  const collectives::ExchangeCost half =
      scaling::exchange_cost(way, std::vector<std::size_t>{10, 80}, 4, 2);
  EXPECT_EQ(half.steps, cost.steps);
  EXPECT_DOUBLE_EQ(half.bytes, cost.bytes / 2);
}

/// Ranks that add like the shared-memory group, but for what a test does in their all-reduce.
class HookedGroup final : public CollectiveGroup {
 public:
  using AllReduce = std::function<void(Collective& real, const Tensor& tensor, Stream& stream)>;
  HookedGroup(std::span<Device* const> devices, Clock& clock, std::stop_token stop,
              AllReduce all_reduce)
      : group_(devices, clock, std::move(stop)), all_reduce_(std::move(all_reduce)) {}
  std::unique_ptr<Collective> join(std::int32_t rank) override {
    return std::make_unique<Hooked>(group_.join(rank), all_reduce_);
  }

 private:
  class Hooked final : public Collective {
   public:
    Hooked(std::unique_ptr<Collective> real, const AllReduce& all_reduce)
        : real_(std::move(real)), all_reduce_(all_reduce) {}
    World world() const noexcept override { return real_->world(); }
    bool recordable() const noexcept override { return false; }
    void all_reduce_sum(Tensor tensor, Stream& stream) override {
      all_reduce_(*real_, tensor, stream);
    }
    void reduce_sum(Tensor, std::int32_t, Stream&) override { FAIL() << "is not exchanged so"; }
    void broadcast(Tensor, std::int32_t, Stream&) override { FAIL() << "is not exchanged so"; }

   private:
    const std::unique_ptr<Collective> real_;
    const AllReduce& all_reduce_;
  };

  collectives::ThreadsGroup group_;
  const AllReduce all_reduce_;
};

scaling::ExchangeWay hooked_way(std::string name, HookedGroup::AllReduce all_reduce) {
  return {.name = std::move(name),
          .make = [all_reduce = std::move(all_reduce)](std::span<Device* const> devices,
                                                       Clock& clock, std::stop_token stop) {
            return std::make_unique<HookedGroup>(devices, clock, std::move(stop), all_reduce);
          }};
}

/// The slowest rank takes `time` per bucket.
HookedGroup::AllReduce slow(Clock& clock, Nanoseconds time) {
  return [&clock, time](Collective& real, const Tensor& tensor, Stream& stream) {
    real.all_reduce_sum(tensor, stream);
    if (const World world = real.world(); world.rank == world.size - 1) {
      clock.sleep_until(clock.now() + time);
    }
  };
}

TEST(ExchangeRun, AnIterationLastsAsLongAsAllBucketsOnTheSlowestRank) {
  VirtualClock clock;
  const scaling::ExchangePlan plan{
      .buckets = {100, 1, 7}, .ranks = 3, .warmup = 2, .iterations = 5};
  const std::vector<scaling::ExchangeWay> ways{hooked_way("slow", slow(clock, 5ms)),
                                               hooked_way("slower", slow(clock, 20ms))};
  const std::vector<scaling::WayTimes> times = scaling::measure_exchanges(plan, ways, clock, {});
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].name, "slow");
  EXPECT_TRUE(times[0].checked);
  EXPECT_EQ(times[0].seconds, std::vector<double>(5, 0.015));
  EXPECT_EQ(times[1].name, "slower");
  EXPECT_EQ(times[1].seconds, std::vector<double>(5, 0.060));
}

TEST(ExchangeRun, EveryWayOfTheProgramAddsRightly) {
  SteadyClock clock;
  const std::vector<std::size_t> buckets =
      scaling::bucket_sizes(sizes_of("tiny_cnn"), {.first_bytes = 0, .bytes = 1024});
  for (const WireFormat wire : {WireFormat::f32, WireFormat::f16, WireFormat::bf16}) {
    std::vector<scaling::ExchangeWay> ways =
        scaling::exchange_ways({.local_ranks = 2, .wire = wire});
    ways.push_back(scaling::memory_bound_way());
    for (const std::int32_t ranks : {2, 5}) {
      const scaling::ExchangePlan plan{
          .buckets = buckets, .ranks = ranks, .warmup = 1, .iterations = 2};
      for (const scaling::WayTimes& times : scaling::measure_exchanges(plan, ways, clock, {})) {
        EXPECT_EQ(times.checked, times.name != scaling::kReadAndWrite) << times.name;
        EXPECT_EQ(times.seconds.size(), 2U) << times.name;
      }
    }
  }
}

TEST(ExchangeRun, AWrongSumEndsItBeforeAnythingIsMeasured) {
  SteadyClock clock;
  const scaling::ExchangeWay idle = hooked_way("idle", [](Collective&, const Tensor&, Stream&) {});
  const scaling::ExchangePlan plan{.buckets = {3}, .ranks = 1, .iterations = 1};
  EXPECT_TRUE(scaling::measure_exchanges(plan, std::vector{idle}, clock, {})[0].checked)
      << "one rank has nothing to add";
  const scaling::ExchangePlan two{.buckets = {3}, .ranks = 2, .iterations = 1};
  const std::string message =
      thrown_by<Error>([&] { scaling::measure_exchanges(two, std::vector{idle}, clock, {}); });
  EXPECT_TRUE(message.starts_with("idle added wrongly: element 0 of 3 on rank ")) << message;
  EXPECT_TRUE(says(message, "expected 3; nothing was measured"));
}

TEST(ExchangeRun, AStopLeavesWhatWasMeasuredByThen) {
  // The exchange itself requests the stop, in its fourth iteration.
  VirtualClock clock;
  std::stop_source stop;
  std::atomic<int> exchanges = 0;
  constexpr int kBeforeStop = 4;  // the check and three iterations
  const HookedGroup::AllReduce add = slow(clock, 5ms);
  const scaling::ExchangeWay stopping =
      hooked_way("stopping", [&](Collective& real, const Tensor& tensor, Stream& stream) {
        if (real.world().rank == 0 && exchanges++ == kBeforeStop) stop.request_stop();
        add(real, tensor, stream);
      });
  const scaling::ExchangePlan plan{.buckets = {3}, .ranks = 2, .iterations = 1000};
  const std::vector<scaling::WayTimes> times =
      scaling::measure_exchanges(plan, std::vector{stopping}, clock, stop.get_token());
  EXPECT_TRUE(times[0].checked);
  EXPECT_EQ(times[0].seconds, std::vector<double>(3, 0.005));
}

TEST(ExchangeFigures, FollowNcclTests) {
  // 1 GB in 10 ms is 100 GB/s; with 4 ranks a ring moves 1.5 times that over each link.
  const scaling::ExchangeFigures figures = scaling::exchange_figures({0.01, 0.02, 0.005}, 1e9, 4);
  EXPECT_DOUBLE_EQ(figures.ms.median, 10);
  EXPECT_DOUBLE_EQ(figures.ms.low, 5);
  EXPECT_DOUBLE_EQ(figures.ms.high, 20);
  EXPECT_DOUBLE_EQ(figures.algbw_gb_per_s, 100);
  EXPECT_DOUBLE_EQ(figures.busbw_gb_per_s, 150);
}

scaling::ExchangeReport sample_report() {
  scaling::ExchangeReport report{
      .command = "penstock allreduce",
      .model = "made_up",
      .plan = {.buckets = {200'000, 50'000}, .ranks = 2, .iterations = 3},
      .stopped = true,
      .notes = {"2 ranks share 1 usable cores and take turns on them"}};
  report.times = {{"shared-memory", true, {0.001, 0.002, 0.004}},
                  {"ring", false, {}, WireFormat::bf16},
                  {"read-and-write", false, {0.0005, 0.001, 0.001}, WireFormat::f32, false}};
  report.costs = {std::nullopt, collectives::ExchangeCost{.steps = 4, .bytes = 1e6}, std::nullopt};
  return report;
}

TEST(ExchangeReport, TheTableHasARowForEachWay) {
  std::ostringstream out;
  scaling::write_exchange_text(sample_report(), out);
  const std::string text = out.str();
  for (const char* part : {
           "Exchange of the gradients of made_up: 250000 elements, 1.0 MB in 2 buckets; 2 ranks",
           "algorithm      wire        ms (low..high)  algbw GB/s  busbw GB/s  of bound  steps  MB "
           "moved  iterations       sums\n",
           "shared-memory  fp32  2.000 (1.000..4.000)        0.50        0.50      50 %      -     "
           "    -           3      right\n",
           "ring           bf16                     -           -           -         -      4     "
           "  1.0           0  unchecked\n",
           "adds nothing: 1.000 (0.500..1.000) ms, 4.0 GB/s of memory.\n",
           "note: 2 ranks share 1 usable cores and take turns on them.\n",
           "Stopped: this is what was measured by then.\n",
       }) {
    EXPECT_TRUE(says(text, part)) << part << "\nin\n" << text;
  }
}

/// The share of the bound in the row of shared memory, whose times are 1, 2 and 4 ms.
nlohmann::ordered_json share_of(std::vector<double> bound_seconds) {
  scaling::ExchangeReport report = sample_report();
  report.times[2].seconds = std::move(bound_seconds);
  std::ostringstream out;
  scaling::write_exchange_text(report, out);
  EXPECT_TRUE(says(out.str(), "-: the bound was slower in half of the iterations or more"));
  const nlohmann::ordered_json json = scaling::to_json(report);
  const bool shown = says(out.str(), " %      -         -           3");
  EXPECT_EQ(shown, !json["rows"][0]["share_of_bound"].is_null()) << out.str();
  return json["rows"][0]["share_of_bound"];
}

TEST(ExchangeReport, ABoundThatWasDisturbedIsNoBoundOfItsIteration) {
  EXPECT_EQ(share_of({0.0005, 0.001, 0.0166})["high"], 0.5) << "415 % in the third";
  EXPECT_EQ(share_of({0.001, 0.002, 0.004})["median"], 1.0);
  EXPECT_TRUE(share_of({0.0005, 0.0083, 0.0166}).is_null()) << "disturbed in most iterations";
  EXPECT_TRUE(share_of({0.00415, 0.0083, 0.0166}).is_null());
}

TEST(ExchangeReport, SpeedsAreAgainstMpiOfTheSameIteration) {
  scaling::ExchangeReport report = sample_report();
  report.times.push_back({"mpi", true, {0.002, 0.006, 0.004}});
  report.costs.emplace_back();
  const nlohmann::ordered_json json = scaling::to_json(report);
  EXPECT_EQ(json["rows"][0]["speed_against_mpi"]["median"], 2.0);
  EXPECT_EQ(json["rows"][0]["speed_against_mpi"]["high"], 3.0);
  std::ostringstream out;
  scaling::write_exchange_text(report, out);
  EXPECT_TRUE(says(out.str(), "2.00 (1.00..3.00)"));
  EXPECT_TRUE(says(out.str(), "x mpi: how often as fast"));
}

TEST(ExchangeReport, TheJsonHasEveryTimeAndSaysThatItIsPartial) {
  const nlohmann::ordered_json json = scaling::to_json(sample_report());
  EXPECT_EQ(json["status"], "partial");
  EXPECT_EQ(json["bytes"], 1e6);
  EXPECT_EQ(json["bucket_elements"], (std::vector<int>{200'000, 50'000}));
  ASSERT_EQ(json["rows"].size(), 2U);
  const nlohmann::ordered_json& memory = json["rows"][0];
  EXPECT_EQ(memory["algorithm"], "shared-memory");
  EXPECT_EQ(memory["time_ms_median"], 2.0);
  EXPECT_EQ(memory["times_ms"], (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(memory["algbw_gb_per_s"], 0.5);
  EXPECT_TRUE(memory["sums_checked"].get<bool>());
  EXPECT_TRUE(memory["steps"].is_null());
  EXPECT_EQ(memory["wire"], "fp32");
  EXPECT_EQ(memory["share_of_bound"]["median"], 0.5);
  EXPECT_EQ(memory["share_of_bound"]["low"], 0.25);
  EXPECT_TRUE(memory["speed_against_mpi"].is_null());
  EXPECT_EQ(json["memory_bound"]["gb_per_s"], 4.0);
  const nlohmann::ordered_json& ring = json["rows"][1];
  EXPECT_TRUE(ring["time_ms_median"].is_null());
  EXPECT_EQ(ring["bytes_moved"], 1e6);
}

}  // namespace
}  // namespace penstock
