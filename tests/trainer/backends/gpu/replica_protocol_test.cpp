// SPDX-License-Identifier: Apache-2.0
// Tests slots, events and recorded steps between feeder, stager and replica: the numbers do not
// depend on when the work runs, and every access is ordered, also after a failure.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/gpu/gpu_on_host.h"
#include "tests/support/gpu/training_rig.h"
#include "tests/support/small_graphs.h"
#include "tests/support/thrown_by.h"
#include "tests/support/tolerance.h"
#include "trainer/backends/gpu/builder.h"
#include "trainer/wire_format.h"

namespace penstock::gpu {
namespace {

constexpr std::int32_t kImages = 2;
using Races = std::vector<std::string>;
/// Weights and updates in host memory.
constexpr const char* kOnHost = "parameter_server:memory=host";

/// A graph that does not mix images.
Graph separate_images() {
  Graph graph({7, 5, 3});
  NodeId node = graph.add("conv", Conv2d{9, {3, 3, 1, 1, 1, 1, 1}, 1, true}, {Graph::kInput});
  node = graph.add("relu", Relu{}, {node});
  node = graph.add("max", MaxPool{{2, 2, 2, 0, 0, 0, 0}}, {node});
  graph.add("logits", Linear{6}, {node});
  return graph;
}
/// The same with a dropout mask that depends on the step.
Graph with_dropout() {
  Graph graph({7, 5, 3});
  NodeId node = graph.add("conv", Conv2d{9, {3, 3, 1, 1, 1, 1, 1}, 1, true}, {Graph::kInput});
  node = graph.add("dropout", Dropout{0.5F}, {node});
  graph.add("logits", Linear{6}, {node});
  return graph;
}

/// Gradients of batch norms and of a branch, which later operations of the backward pass could
/// read.
Graph with_batch_norms() {
  Graph graph({7, 5, 3});
  NodeId node = graph.add("conv1", Conv2d{16, {3, 3, 1, 1, 1, 1, 1}}, {Graph::kInput});
  node = graph.add("bn1", BatchNorm{}, {node});
  const NodeId branch = graph.add("relu1", Relu{}, {node});
  node = graph.add("conv2", Conv2d{16, {3, 3, 1, 1, 1, 1, 1}, 1, true}, {branch});
  node = graph.add("bn2", BatchNorm{}, {node});
  node = graph.add("sum", Add{}, {node, branch});
  node = graph.add("relu2", Relu{}, {node});
  node = graph.add("hidden", Linear{24}, {node});
  node = graph.add("relu3", Relu{}, {node});
  graph.add("logits", Linear{7}, {node});
  return graph;
}

std::vector<PlainBatch> batches_for(const Graph& graph, std::size_t count, std::int32_t images) {
  std::vector<PlainBatch> batches;
  for (std::size_t i = 0; i < count; ++i) {
    batches.push_back(
        random_batch(graph.input_shape(), images, graph.nodes().back().shape.channels, i + 1));
  }
  return batches;
}

/// Batch k * ranks + r is rank r's part of global batch k.
std::vector<PlainBatch> parts_of(const std::vector<PlainBatch>& global, std::int32_t ranks) {
  std::vector<PlainBatch> parts;
  for (const PlainBatch& batch : global) {
    const auto pixels = static_cast<std::ptrdiff_t>(batch.pixels.size()) / ranks;
    const auto labels = static_cast<std::ptrdiff_t>(batch.labels.size()) / ranks;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      parts.push_back(
          {{batch.pixels.begin() + rank * pixels, batch.pixels.begin() + (rank + 1) * pixels},
           {batch.labels.begin() + rank * labels, batch.labels.begin() + (rank + 1) * labels},
           static_cast<std::int32_t>(labels)});
    }
  }
  return parts;
}

/// Timings of the work: at once, as late as possible, and several random orders.
std::vector<HostMachineOptions> timings(std::uint64_t seeds) {
  std::vector<HostMachineOptions> all{{.timing = Timing::at_once}, {.timing = Timing::late}};
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    all.push_back({.timing = Timing::shuffled, .seed = seed});
  }
  return all;
}

/// Two ranks with one GPU each, and the buckets in which they exchange.
RigOptions connected(Precision precision, WireFormat wire, std::optional<BucketLimits> buckets) {
  RigOptions options{.ranks = 2, .precision = precision, .buckets = buckets};
  options.exchange.wire = wire;
  options.loss_scale = is_short(precision) ? 64 : 1;
  return options;
}

TEST(ReplicaProtocol, SeveralReplicasAreOneOfTheGlobalBatchOnOneGpuAndOnSeveral) {
  const Graph graph = separate_images();
  constexpr std::size_t kSteps = 4;
  for (const std::int32_t ranks : {2, 4}) {
    const std::vector<PlainBatch> global = batches_for(graph, kSteps, ranks * kImages);
    TrainingRig alone(graph, {.images = ranks * kImages});
    const PlainTensors first = alone.weights(0);
    alone.run(global);
    const PlainTensors expected = alone.weights(0);
    const double tolerance = kSteps * tolerance_for(graph, ranks * kImages, Precision::f32).forward;
    for (const char* update : {"replicated", "parameter_server", kOnHost}) {
      for (const std::int32_t devices : {1, 2, 4}) {
        SCOPED_TRACE(std::string(update) + ", " + std::to_string(ranks) + " ranks on " +
                     std::to_string(devices));
        TrainingRig together(graph, {.update = update, .ranks = ranks, .images = kImages},
                             {.devices = devices});
        together.run(parts_of(global, ranks));
        EXPECT_EQ(together.races(), Races{});
        for (std::int32_t rank = 1; rank < ranks; ++rank) {
          EXPECT_EQ(together.weights(rank), together.weights(0)) << "rank " << rank;
        }
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const double moved = distance(expected[i], first[i]);
          EXPECT_GT(moved, 0);
          EXPECT_LE(distance(together.weights(0)[i], expected[i]),
                    tolerance * moved + kSteps * 0x1p-24 * norm(expected[i]));
        }
      }
    }
  }
}

TEST(ReplicaProtocol, WeightsInHostMemoryDoNotDependOnBucketsAndTimings) {
  const Graph graph = with_batch_norms();
  constexpr std::size_t kSteps = 5;
  const std::vector<PlainBatch> batches = batches_for(graph, 2 * kSteps, kImages);
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    for (const char* update : {"parameter_server", "parameter_server:staged=true"}) {
      RigOptions options = connected(precision, WireFormat::f32, {});
      options.update = update;
      TrainingRig on_gpus(graph, options, {.devices = 2});
      on_gpus.run(batches);
      options.update += update == std::string("parameter_server") ? ":" : ",";
      options.update += "memory=host";
      PlainTensors expected;
      for (const std::size_t bytes : {1, 0}) {
        for (HostMachineOptions machine : timings(1)) {
          for (const char* backend : {"gpu", "gpu:record=false"}) {
            if (bytes != 1 && std::string_view(backend) != "gpu") continue;
            SCOPED_TRACE(options.update + ", buckets of " + std::to_string(bytes) + ", seed " +
                         std::to_string(machine.seed) + ", " + backend);
            machine.devices = 2;
            options.backend = backend;
            options.buckets = BucketLimits{.first_bytes = bytes, .bytes = bytes};
            TrainingRig on_host(graph, options, machine);
            on_host.run(batches);
            EXPECT_EQ(on_host.races(), Races{});
            if (expected.empty()) expected = on_host.weights(0);
            EXPECT_EQ(on_host.weights(0), expected);
            EXPECT_EQ(on_host.weights(1), expected);
          }
        }
      }
      const double tolerance = kSteps * tolerance_for(graph, kImages, Precision::f32).forward;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LE(distance(expected[i], on_gpus.weights(0)[i]), tolerance * norm(expected[i]));
      }
    }
  }
}

TEST(ReplicaProtocol, UpdatesBehindTheRecordedStepEqualUpdatesInsideIt) {
  const Graph graph = separate_images();
  const std::vector<PlainBatch> batches = batches_for(graph, 5, kImages);
  TrainingRig inside(graph, {.record_update = true}), behind(graph, {.record_update = false});
  inside.run(batches);
  behind.run(batches);
  EXPECT_EQ(inside.weights(0), behind.weights(0));
  EXPECT_EQ(inside.state(0), behind.state(0));
  EXPECT_EQ(behind.races(), Races{});
}

TEST(ReplicaProtocol, WeightsDoNotDependOnWhenTheWorkIsDoneAndNothingRaces) {
  const Graph graph = with_dropout();
  for (const std::int32_t ranks : {1, 2}) {
    const std::vector<PlainBatch> batches =
        batches_for(graph, static_cast<std::size_t>(8 * ranks), kImages);
    PlainTensors expected;
    for (const HostMachineOptions& machine : timings(10)) {
      for (const std::size_t slots : {1U, 2U, 3U}) {
        TrainingRig rig(graph,
                        {.ranks = ranks,
                         .host_slots = slots * static_cast<std::size_t>(ranks),
                         .device_slots = slots},
                        machine);
        rig.run(batches);
        EXPECT_EQ(rig.results(0).size(), 8U);
        EXPECT_EQ(rig.races(), Races{}) << "seed " << machine.seed << ", " << slots << " slots";
        if (expected.empty()) expected = rig.weights(0);
        EXPECT_EQ(rig.weights(0), expected) << "seed " << machine.seed << ", " << slots;
      }
    }
  }
}

TEST(ReplicaProtocol, AReplayedStepSeesItsOwnRateCountAndStepNumber) {
  const Graph graph = with_dropout();
  std::vector<PlainBatch> batches = batches_for(graph, 7, kImages);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    batches[i].valid = 1 + static_cast<std::int32_t>(i / 2 % 2);
  }
  const auto hyper = [](std::int64_t step) {
    return Hyper{.learning_rate = 0.5F / static_cast<float>(2 + step * step), .step = step};
  };
  TrainingRig replayed(graph, {.optimizer = "adam", .hyper = hyper});
  replayed.run(batches);

  ExecutableSpec spec = spec_for(graph, kImages);
  CompiledGraph eager(gpu_on_host_backend, graph, spec);
  const OptimizerEntry& adam = find_entry(optimizer_table(), "adam");
  const Options options(adam.name, adam.options, {});
  const auto optimizer = eager.backend().make_optimizer({adam, options}, spec, eager.device());
  const ParameterSet& set = eager.executable().parameters();
  optimizer->prepare(set);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    eager.run(Phase::train, batches[i]);
    optimizer->set(hyper(static_cast<std::int64_t>(i)), eager.stream());
    optimizer->apply(set, 1, eager.stream(), eager.result());
    eager.wait();
    EXPECT_EQ(replayed.results(0)[i].loss, eager.result().loss) << "step " << i;
    EXPECT_EQ(replayed.results(0)[i].images, batches[i].valid);
  }
  EXPECT_EQ(replayed.weights(0), eager.weights());
}

TEST(ReplicaProtocol, StepsThatAreEnqueuedEachTimeLeaveTheBitsOfRecordedOnes) {
  const Graph graph = with_dropout();
  const auto hyper = [](std::int64_t step) {
    return Hyper{.learning_rate = 0.5F / static_cast<float>(2 + step), .step = step};
  };
  for (const std::int32_t ranks : {1, 2}) {
    std::vector<PlainBatch> batches =
        batches_for(graph, static_cast<std::size_t>(6 * ranks), kImages);
    for (std::size_t i = 0; i < batches.size(); i += 3) batches[i].valid = 1;
    for (const bool record_update : {true, false}) {
      RigOptions options{.optimizer = "adam", .ranks = ranks, .record_update = record_update};
      options.hyper = hyper;
      TrainingRig recorded(graph, options);
      recorded.run(batches);
      options.backend = "gpu:record=false";
      for (const HostMachineOptions& machine : timings(3)) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, update " +
                     (record_update ? "within" : "behind") + ", seed " +
                     std::to_string(machine.seed));
        TrainingRig enqueued(graph, options, machine);
        for (std::int32_t rank = 0; rank < ranks; ++rank) {
          enqueued.driver(rank).fail_at("begin_capture", 1);
        }
        enqueued.run(batches);
        EXPECT_EQ(enqueued.weights(0), recorded.weights(0));
        EXPECT_EQ(enqueued.state(0), recorded.state(0));
        ASSERT_EQ(enqueued.results(0).size(), recorded.results(0).size());
        for (std::size_t i = 0; i < recorded.results(0).size(); ++i) {
          EXPECT_EQ(enqueued.results(0)[i].loss, recorded.results(0)[i].loss) << "step " << i;
        }
        EXPECT_EQ(enqueued.races(), Races{});
      }
    }
  }
}

TEST(ReplicaProtocol, RecordingAStepAllocatesNothingAndWaitsForNothing) {
  // In a recording, the host driver throws in both cases.
  const Graph graph = with_dropout();
  TrainingRig rig(graph, {});
  Device& device = rig.device(0);
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Event> event = device.make_event();
  stream->record(*event);
  EXPECT_THROW(stream->capture([&] { device.allocate(1, MemoryKind::device); }), std::logic_error);
  EXPECT_THROW(stream->capture([&] { event->wait_until(Time::max()); }), std::logic_error);
  rig.run(batches_for(graph, 6, kImages));
  EXPECT_EQ(rig.results(0).size(), 6U);
}

TEST(ReplicaProtocol, GradientsThatTravelAs16BitsLeaveTheSameBitsOnAllRanks) {
  const Graph graph = separate_images();
  const std::vector<PlainBatch> batches = batches_for(graph, 8, kImages);
  TrainingRig wide(graph, {.ranks = 2});
  wide.run(batches);
  for (const HostMachineOptions& machine : timings(3)) {
    TrainingRig narrow(graph, {.ranks = 2, .exchange = {.wire = WireFormat::f16}}, machine);
    narrow.run(batches);
    EXPECT_EQ(narrow.races(), Races{});
    EXPECT_EQ(narrow.weights(1), narrow.weights(0));
    EXPECT_NE(narrow.weights(0), wide.weights(0));
    for (std::size_t i = 0; i < wide.weights(0).size(); ++i) {
      EXPECT_LE(distance(narrow.weights(0)[i], wide.weights(0)[i]),
                1e-3 * norm(wide.weights(0)[i]) + 1e-5);
    }
  }
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kTakesMinutes = true;
#else
constexpr bool kTakesMinutes = false;
#endif

TEST(ReplicaProtocol, BucketsExchangedDuringBackwardLeaveTheBitsOfOneExchangeBehindIt) {
  const Graph graph = with_batch_norms();
  constexpr std::size_t kSteps = 5;
  const std::vector<PlainBatch> batches = batches_for(graph, 2 * kSteps, kImages);
  for (const auto& [precision, wire] :
       {std::pair{Precision::f32, WireFormat::f32}, std::pair{Precision::f32, WireFormat::bf16},
        std::pair{Precision::f16, WireFormat::f32}, std::pair{Precision::f16, WireFormat::f16}}) {
    if (kTakesMinutes && wire != WireFormat::f16) continue;
    TrainingRig behind(graph, connected(precision, wire, {}), {.devices = 2, .connects = true});
    behind.run(batches);
    EXPECT_TRUE(behind.overlaps(0));
    EXPECT_NE(behind.weights(0), TrainingRig(graph, {.precision = precision}).weights(0));
    for (const BucketLimits limits : {BucketLimits{.first_bytes = 1, .bytes = 1},
                                      BucketLimits{.first_bytes = 256, .bytes = 4096},
                                      BucketLimits{.bytes = 0}, BucketLimits{.pieces = 3}}) {
      for (HostMachineOptions machine : timings(2)) {
        for (const char* backend : {"gpu", "gpu:record=false"}) {
          if (limits.bytes != 1 && std::string_view(backend) != "gpu") continue;
          SCOPED_TRACE(std::string(to_string(precision)) + " by " + std::string(to_string(wire)) +
                       ", buckets of " + std::to_string(limits.bytes) + ", seed " +
                       std::to_string(machine.seed) + ", " + backend);
          machine.devices = 2;
          machine.connects = true;
          RigOptions options = connected(precision, wire, limits);
          options.backend = backend;
          TrainingRig during(graph, options, machine);
          during.run(batches);
          EXPECT_EQ(during.races(), Races{});
          EXPECT_EQ(during.weights(0), behind.weights(0));
          EXPECT_EQ(during.weights(1), behind.weights(0));
          EXPECT_EQ(during.exchange_times(0).steps, std::int64_t{kSteps});
        }
      }
    }
  }
}

TEST(ReplicaProtocol, TheFirstBucketsAreExchangedWhileBackwardGoesOnAndTheRecordSaysWhatShows) {
  const Graph graph = with_batch_norms();
  // With one slot per step, no rank waits on the host before it has enqueued all steps, so that
  // device times do not depend on the threads.
  constexpr std::size_t kSteps = 4;
  const std::vector<PlainBatch> batches = batches_for(graph, 2 * kSteps, kImages);
  const auto times_of = [&](Precision precision, const BucketLimits& limits) {
    RigOptions options = connected(precision, WireFormat::f32, limits);
    options.device_slots = kSteps;
    options.host_slots = 2 * kSteps;
    TrainingRig rig(graph, options, {.devices = 2, .connects = true});
    rig.run(batches);
    return rig.exchange_times(0);
  };
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    SCOPED_TRACE(to_string(precision));
    const ExchangeTimes one = times_of(precision, {.bytes = 0});
    const ExchangeTimes many = times_of(precision, {.first_bytes = 1, .bytes = 1});
    EXPECT_EQ(one.steps, std::int64_t{kSteps});
    EXPECT_EQ(many.steps, std::int64_t{kSteps});
    ASSERT_EQ(one.buckets.size(), 1U);
    ASSERT_GT(many.buckets.size(), 5U);
    EXPECT_GT(one.exposed, Nanoseconds(0));
    EXPECT_LT(many.exposed, many.busy);
    EXPECT_GT(many.buckets.front().lead, one.buckets.front().lead);
    for (std::size_t i = 1; i < many.buckets.size(); ++i) {
      EXPECT_LE(many.buckets[i].lead, many.buckets[i - 1].lead);
    }
  }
}

TEST(ReplicaProtocol, GradientsThatOverflowF16ChangeNeitherWeightsNorState) {
  const Graph graph = separate_images();
  for (const auto& [update, record_update] :
       {std::pair{"replicated", true}, std::pair{"replicated", false}, std::pair{kOnHost, false}}) {
    RigOptions options{
        .update = update, .precision = Precision::f16, .record_update = record_update};
    options.loss_scale = 128;
    TrainingRig fine(graph, options);
    options.loss_scale = 1e12F;
    TrainingRig overflown(graph, options);
    const PlainTensors first = overflown.weights(0), state = overflown.state(0);
    for (TrainingRig* const rig : {&fine, &overflown}) {
      rig->run(batches_for(graph, 4, kImages));
      EXPECT_EQ(rig->results(0).size(), 4U);
      for (const StepResult& result : rig->results(0)) {
        EXPECT_TRUE(std::isfinite(result.loss));
        EXPECT_EQ(result.finite, rig == &fine);
      }
    }
    EXPECT_NE(fine.weights(0), first);
    EXPECT_EQ(overflown.weights(0), first);
    EXPECT_EQ(overflown.state(0), state);
  }
}

TEST(ReplicaProtocol, ALossScaleThatAdaptsItselfFindsWhatF16BearsOnAllRanksAlike) {
  const Graph graph = separate_images();
  constexpr std::size_t kSteps = 40;
  for (const char* update : {"replicated", "parameter_server", kOnHost}) {
    for (const std::int32_t ranks : {1, 2}) {
      SCOPED_TRACE(std::string(update) + ", " + std::to_string(ranks) + " ranks");
      RigOptions options{.update = update, .ranks = ranks, .precision = Precision::f16};
      options.loss_scale = 0x1p35F;
      options.loss_scale_count_to = 3;
      TrainingRig rig(graph, options);
      rig.run(batches_for(graph, kSteps * static_cast<std::size_t>(ranks), kImages));
      EXPECT_EQ(rig.races(), Races{});
      // In both updates, rank 0 applies the gradients and knows which steps were skipped.
      LossScale expected{0x1p35F, 0};
      std::int32_t skipped = 0;
      for (const StepResult& result : rig.results(0)) {
        EXPECT_TRUE(std::isfinite(result.loss));
        expected = next_loss_scale(expected, result.finite, 3);
        skipped += result.finite ? 0 : 1;
      }
      EXPECT_FALSE(rig.results(0).front().finite);
      EXPECT_GT(skipped, 10);
      EXPECT_LT(skipped, static_cast<std::int32_t>(kSteps) - 5);
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(rig.loss_scale(rank), expected) << "rank " << rank;
        EXPECT_EQ(rig.weights(rank), rig.weights(0)) << "rank " << rank;
      }
    }
  }
}

TEST(ReplicaProtocol, ALossScaleThatAdaptsItselfIsAFixedOneWhileNothingHappens) {
  const Graph graph = separate_images();
  const std::vector<PlainBatch> batches = batches_for(graph, 6, kImages);
  RigOptions options{.precision = Precision::f16};
  options.loss_scale = 64;
  TrainingRig fixed(graph, options);
  options.loss_scale_count_to = 1000;
  TrainingRig automatic(graph, options);
  fixed.run(batches);
  automatic.run(batches);
  EXPECT_EQ(automatic.weights(0), fixed.weights(0));
  EXPECT_EQ(automatic.loss_scale(0), (LossScale{64, 6}));
}

TEST(ReplicaProtocol, AFeederThatFailsIsHeardBehindTheBatchesBeforeIt) {
  const Graph graph = separate_images();
  for (const HostMachineOptions& machine : timings(5)) {
    TrainingRig rig(graph, {}, machine);
    EXPECT_THROW(rig.run(batches_for(graph, 5, kImages),
                         std::make_exception_ptr(DataError("image 7 is damaged"))),
                 DataError);
    EXPECT_EQ(rig.results(0).size(), 5U);
    EXPECT_EQ(rig.races(), Races{});
  }
}

/// Calls `act` once all ranks have begun the first step.
void act_after_first_step(RigOptions& options, const std::function<void()>& act) {
  options.hyper = [&act, ranks = options.ranks,
                   begun = std::make_shared<std::atomic<std::int32_t>>(0)](std::int64_t step) {
    if (step == 0 && ++*begun == ranks) act();
    return Hyper{.step = step};
  };
}

/// Trains until the driver of the last rank fails at the nth call of `call` after the first step.
void expect_orderly_end(const char* call, std::int32_t nth, std::int32_t ranks,
                        const HostMachineOptions& machine) {
  const Graph graph = separate_images();
  std::function<void()> fail;
  RigOptions options{.ranks = ranks, .device_slots = 3};
  act_after_first_step(options, fail);
  TrainingRig rig(graph, options, machine);
  fail = [&] { rig.driver(ranks - 1).fail_at(call, nth); };
  const std::string text = thrown_by<DeviceError>(
      [&] { rig.run(batches_for(graph, static_cast<std::size_t>(10 * ranks), kImages)); });
  EXPECT_EQ(text.find("in step "), 0U) << text;
  EXPECT_TRUE(says(text, std::string(call) + " failed on host 0"));
  if (std::string(call).ends_with("capture")) {
    EXPECT_TRUE(says(text, "--device gpu:record=false"));
  }
  EXPECT_LT(rig.results(0).size(), 10U);
  EXPECT_EQ(rig.races(), Races{});
}

TEST(ReplicaProtocol, ACallThatFailsInAnyPlaceEndsTheRunByStepAndCallAndNothingRaces) {
  for (const char* call : {"launch_graph", "launch", "copy", "record", "wait", "wait_until",
                           "begin_capture", "end_capture"}) {
    for (const std::int32_t nth : {1, 2, 3, 5}) {
      if (nth > 1 && std::string(call).ends_with("capture")) continue;  // only three slots
      for (const std::int32_t ranks : {1, 2}) {
        for (const HostMachineOptions& machine : timings(5)) {
          SCOPED_TRACE(std::string(call) + " " + std::to_string(nth) + ", " +
                       std::to_string(ranks) + " ranks, seed " + std::to_string(machine.seed));
          expect_orderly_end(call, nth, ranks, machine);
        }
      }
    }
  }
}

TEST(ReplicaProtocol, ACallThatFailsWhileBucketsAreExchangedEndsTheRunAndNothingRaces) {
  const Graph graph = separate_images();
  for (const char* call : {"launch_graph", "launch", "record", "wait", "wait_until"}) {
    for (const std::int32_t nth : {1, 4}) {
      for (HostMachineOptions machine : timings(2)) {
        SCOPED_TRACE(std::string(call) + " " + std::to_string(nth) + ", seed " +
                     std::to_string(machine.seed));
        machine.devices = 2;
        machine.connects = true;
        RigOptions options =
            connected(Precision::f32, WireFormat::f32, BucketLimits{.first_bytes = 1, .bytes = 1});
        std::function<void()> fail;
        act_after_first_step(options, fail);
        TrainingRig rig(graph, options, machine);
        fail = [&] { rig.driver(1).fail_at(call, nth); };
        EXPECT_THROW(rig.run(batches_for(graph, 20, kImages)), Error);
        EXPECT_LT(rig.results(1).size(), 10U);
        EXPECT_EQ(rig.races(), Races{});
      }
    }
  }
}

}  // namespace
}  // namespace penstock::gpu
