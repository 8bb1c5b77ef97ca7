// SPDX-License-Identifier: Apache-2.0
// Tests libpenstock_cuda.so over the fake CUDA libraries (tests/support/gpu/fake): the order in
// which the driver calls CUDA and cuDNN, and how it handles their errors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/run/run_setup.h"
#include "dataflow/error.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/gpu/fake/control.h"
#include "tests/support/gpu/gpu_on_host.h"
#include "tests/support/small_graphs.h"
#include "tests/support/thrown_by.h"
#include "trainer/backends/gpu/backend.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/backends/gpu/library.h"

namespace penstock::gpu {
namespace {

constexpr std::size_t kCount = 64, kBytes = kCount * sizeof(float);

class CudaDriver : public testing::Test {
 protected:
  void SetUp() override { fake_cuda_restart(""); }
  void TearDown() override { EXPECT_EQ(fake_cuda_races(), 0); }
};

template <typename Work>
std::string reason_of(const Work& work) {
  return thrown_by<DeviceError>(work);
}

/// A GPU with a stream, an event, a block of its memory and a pinned block.
struct Bench {
  explicit Bench(const char* settings = "") : driver(open(settings)) {
    stream = driver->make_stream();
    event = driver->make_event();
    device = driver->allocate(kBytes, MemoryKind::device);
    pinned = driver->allocate(kBytes, MemoryKind::pinned);
    std::memset(pinned, 0, kBytes);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    driver->free(pinned, MemoryKind::pinned);
    driver->free(device, MemoryKind::device);
    driver->destroy(event);
    driver->destroy(stream);
  }
  static std::unique_ptr<Driver> open(const char* settings) {
    fake_cuda_restart(settings);
    return driver_library().open(0);
  }
  void finish(StreamHandle of) {
    driver->record(of, event);
    driver->wait_until(event, Time::max());
  }
  void finish() { finish(stream); }
  /// The graph of device[i] = max(device[i], 0), computed through a plan of cuDNN.
  static DnnGraph relu() {
    DnnGraph graph;
    const auto x = graph.add({{1, kCount, 1, 1}, DType::f32, false});
    graph.operations = {DnnPointwise{PointwiseMode::relu, x, kNoTensor, x}};
    return graph;
  }
  float* values() const { return reinterpret_cast<float*>(pinned); }

  std::unique_ptr<Driver> driver;
  StreamHandle stream = nullptr;
  EventHandle event = nullptr;
  std::byte *device = nullptr, *pinned = nullptr;
};

std::vector<Candidate> candidates_for(Driver& driver, const DnnGraph& graph) {
  return driver.planner().candidates(graph, {.allow_tf32 = true}, 100);
}

/// A plan, with memory for it.
struct PlanOf {
  PlanOf(Bench& on, const DnnGraph& graph)
      : bench(on),
        plan(on.driver->build(graph, candidates_for(*on.driver, graph).at(0).choice)),
        workspace(on.driver->allocate(plan->workspace_bytes(), MemoryKind::device)) {}
  PlanOf(const PlanOf&) = delete;
  PlanOf& operator=(const PlanOf&) = delete;
  ~PlanOf() { bench.driver->free(workspace, MemoryKind::device); }
  void execute(StreamHandle stream) const {
    bench.driver->execute(stream, *plan, std::vector{bench.device}, workspace);
  }

  Bench& bench;
  const std::unique_ptr<DnnPlan> plan;
  std::byte* const workspace;
};

TEST_F(CudaDriver, KnowsItsDevice) {
  fake_cuda_restart("devices=2,memory_mib=512");
  EXPECT_EQ(driver_library().device_count(), 2);
  const std::unique_ptr<Driver> driver = driver_library().open(1);
  const DeviceFacts& facts = driver->facts();
  EXPECT_EQ(facts.name, "Fake GPU 1");
  EXPECT_EQ(facts.capability, 90);
  EXPECT_EQ(facts.multiprocessors, 132);
  EXPECT_EQ(facts.memory_bytes, std::size_t{512} << 20);
  EXPECT_EQ(facts.pci_bus, "0000:01:00.0");
  EXPECT_EQ(facts.driver_version, facts.runtime_version);
  EXPECT_EQ(facts.dnn_version, "9.19.0");
  EXPECT_EQ(driver->free_bytes(), facts.memory_bytes);
  EXPECT_TRUE(driver->reach(0));
  EXPECT_TRUE(driver->reach(0)) << "access that is enabled already";
}

TEST_F(CudaDriver, AGpuThatCannotBeUsedSaysWhy) {
  const auto reason_with = [](const char* settings) {
    fake_cuda_restart(settings);
    return thrown_by<Unavailable>([] { driver_library().open(0); });
  };
  EXPECT_TRUE(says(reason_with("devices=0"), "cudaErrorNoDevice"));
  EXPECT_TRUE(says(reason_with("devices=0"), "CUDA_VISIBLE_DEVICES"));
  EXPECT_TRUE(says(reason_with("driver=0"), "no driver: install NVIDIA's driver for CUDA 13"));
  EXPECT_TRUE(says(reason_with("driver=12080"), "supports CUDA 12.8 only: install NVIDIA's"));
  EXPECT_TRUE(says(reason_with("capability=80"), "compute capability 8.0; "));
  EXPECT_TRUE(says(reason_with("capability=80"), "use another device"));
  EXPECT_TRUE(says(reason_with("fail=cudaSetDevice:1:46"), "exclusive use"));
  fake_cuda_restart("");
  EXPECT_TRUE(says(thrown_by<Unavailable>([] { driver_library().open(1); }), "device 0 only"));
}

TEST_F(CudaDriver, ALostGpuSaysWhereToLook) {
  for (const char* const fault :
       {"fail=cudaEventSynchronize:1:46", "fail=cudaEventSynchronize:1:214",
        "fail=cudaEventSynchronize:1:999"}) {
    Bench bench(fault);
    EXPECT_TRUE(says(reason_of([&] { bench.finish(); }), "the GPU was lost or is faulty: look "));
  }
}

TEST_F(CudaDriver, CopiesInTheOrderOfStreamsAndEvents) {
  for (const char* const timing : {"timing=late", "timing=at_once", "timing=shuffled"}) {
    Bench bench(timing);
    const StreamHandle other = bench.driver->make_stream();
    bench.values()[0] = 3;
    bench.driver->copy(bench.stream, bench.device, bench.pinned, kBytes);
    bench.driver->record(bench.stream, bench.event);
    bench.driver->wait(other, bench.event);
    std::byte* const copy = bench.driver->allocate(kBytes, MemoryKind::pinned);
    bench.driver->copy(other, copy, bench.device, kBytes);
    bench.driver->record(other, bench.event);
    EXPECT_TRUE(bench.driver->wait_until(bench.event, Time::max()));
    EXPECT_EQ(*reinterpret_cast<const float*>(copy), 3);
    EXPECT_EQ(fake_cuda_races(), 0);
    bench.driver->free(copy, MemoryKind::pinned);
    bench.driver->destroy(other);
  }
}

TEST_F(CudaDriver, SlotsOfTheHostRingArePinnedOrPageable) {
  for (const bool pinned : {true, false}) {
    fake_cuda_restart("");
    GpuDevice device(driver_library().open(0));
    RunConfig config;
    config.pinned_memory = pinned;
    Probe probe;
    SlotMemory memory(device, config, probe);
    const int allocated = fake_cuda_calls("cudaHostAlloc");
    const Buffer slot = memory.allocate(kBytes, MemoryKind::pinned);
    EXPECT_EQ(fake_cuda_calls("cudaHostAlloc") - allocated, pinned ? 1 : 0);
    std::vector<std::byte> foreign(kBytes);
    EXPECT_EQ(memory.pin(foreign) != nullptr, pinned) << "memory of a producer";
    EXPECT_EQ(fake_cuda_calls("cudaHostRegister"), pinned ? 1 : 0);

    const Buffer on_device = device.allocate(kBytes, MemoryKind::device);
    const Buffer back = device.allocate(kBytes, MemoryKind::pinned);
    std::memset(slot.bytes().data(), 7, kBytes);
    device.copy_now(on_device.bytes().data(), slot.bytes().data(), kBytes);
    device.copy_now(back.bytes().data(), on_device.bytes().data(), kBytes);
    EXPECT_EQ(back.bytes()[kBytes - 1], std::byte{7});
  }
}

TEST_F(CudaDriver, EventsTellTheTimeBetweenThem) {
  Bench bench;
  const EventHandle begin = bench.driver->make_event();
  bench.driver->record(bench.stream, begin);
  bench.driver->copy(bench.stream, bench.device, bench.pinned, kBytes);
  bench.finish();
  EXPECT_EQ(bench.driver->elapsed(begin, bench.event), Nanoseconds(2 * kBytes + 1));
  bench.driver->destroy(begin);
}

TEST_F(CudaDriver, AWaitThatIsNotOverInTimeDoesNotFailTheNextLaunch) {
  Bench bench;
  for (int i = 0; i < 3; ++i) {
    bench.driver->copy(bench.stream, bench.device, bench.pinned, kBytes);
  }
  bench.driver->record(bench.stream, bench.event);
  EXPECT_FALSE(bench.driver->wait_until(bench.event, Time{}));
  auto* const scalars = reinterpret_cast<StepScalars*>(
      bench.driver->allocate(sizeof(StepScalars), MemoryKind::device));
  EXPECT_NO_THROW(bench.driver->launch(bench.stream, SetStep{scalars, 1, 2, 3}));
  bench.finish();
  bench.driver->free(reinterpret_cast<std::byte*>(scalars), MemoryKind::device);
}

TEST_F(CudaDriver, AFailureThatIsNotReportedDoesNotFailTheNextLaunch) {
  Bench bench("fail=cudaFree:1:1,fail=cudaEventDestroy:1:1,fail=cudaStreamDestroy:1:1");
  auto* const scalars = reinterpret_cast<StepScalars*>(
      bench.driver->allocate(sizeof(StepScalars), MemoryKind::device));
  const auto launch = [&] { bench.driver->launch(bench.stream, SetStep{scalars, 1, 2, 3}); };
  bench.driver->free(bench.driver->allocate(1, MemoryKind::device), MemoryKind::device);
  EXPECT_NO_THROW(launch());
  bench.driver->destroy(bench.driver->make_event());
  EXPECT_NO_THROW(launch());
  bench.driver->destroy(bench.driver->make_stream());
  EXPECT_NO_THROW(launch());
  bench.finish();
}

TEST_F(CudaDriver, PinnedForeignMemoryCanBeRecorded) {
  Bench bench;
  const std::vector<std::byte> foreign(kBytes, std::byte{0});
  ASSERT_TRUE(bench.driver->pin(foreign));
  EXPECT_FALSE(bench.driver->pin(foreign)) << "twice";
  bench.driver->begin_capture(bench.stream);
  bench.driver->copy(bench.stream, bench.device, foreign.data(), kBytes);
  bench.driver->destroy(bench.driver->end_capture(bench.stream));
  bench.driver->unpin(foreign);
}

TEST_F(CudaDriver, ARecordingRunsWithEachLaunchAndItsEventsAreForOthers) {
  for (const char* const timing : {"timing=late", "timing=at_once", "timing=shuffled"}) {
    Bench bench(timing);
    const StreamHandle other = bench.driver->make_stream();
    std::byte* const copy = bench.driver->allocate(kBytes, MemoryKind::pinned);
    bench.driver->begin_capture(bench.stream);
    bench.driver->copy(bench.stream, bench.device, bench.pinned, kBytes);
    bench.driver->record(bench.stream, bench.event);
    const GraphHandle graph = bench.driver->end_capture(bench.stream);
    for (const float value : {2.F, 5.F}) {
      bench.values()[0] = value;
      bench.driver->launch(bench.stream, graph);
      bench.driver->wait(other, bench.event);
      bench.driver->copy(other, copy, bench.device, kBytes);
      bench.finish(other);
      EXPECT_EQ(*reinterpret_cast<const float*>(copy), value);
    }
    bench.driver->destroy(graph);
    bench.driver->free(copy, MemoryKind::pinned);
    bench.driver->destroy(other);
  }
}

TEST_F(CudaDriver, WhatCannotBeRecordedFailsTheRecordingAndTheStreamGoesOn) {
  Bench bench;
  const auto record = [&](const auto& forbidden) {
    bench.driver->begin_capture(bench.stream);
    const std::string reason = reason_of(forbidden);
    EXPECT_TRUE(says(reason, "cudaErrorStreamCaptureUnsupported"));
    EXPECT_TRUE(says(
        reason_of([&] { bench.driver->copy(bench.stream, bench.device, bench.pinned, kBytes); }),
        "cudaErrorStreamCaptureInvalidated"));
    EXPECT_TRUE(says(reason_of([&] { bench.driver->end_capture(bench.stream); }),
                     "cudaErrorStreamCaptureInvalidated"));
    bench.driver->abandon_capture(bench.stream);
    bench.finish();
  };
  record([&] { bench.driver->allocate(1, MemoryKind::device); });
  record([&] { bench.driver->allocate(1, MemoryKind::pinned); });
  record([&] { bench.driver->wait_until(bench.event, Time::max()); });
  record([&] {
    std::byte pageable[4] = {};
    bench.driver->copy(bench.stream, bench.device, pageable, sizeof(pageable));
  });
  bench.driver->begin_capture(bench.stream);
  bench.driver->destroy(bench.driver->end_capture(bench.stream));
}

TEST_F(CudaDriver, OutOfMemorySaysHowMuchIsFree) {
  Bench bench("memory_mib=1");
  const std::string reason =
      reason_of([&] { bench.driver->allocate(std::size_t{2} << 20, MemoryKind::device); });
  EXPECT_TRUE(says(reason, "CUDA device 0: cudaMalloc of 2097152 bytes, with 1048320 bytes free"));
  EXPECT_TRUE(says(reason, "cudaErrorMemoryAllocation: out of memory; use a smaller batch"));
  bench.finish();
}

TEST_F(CudaDriver, AfterAnIllegalAccessEachCallFailsWithIt) {
  Bench bench;
  bench.driver->copy(bench.stream, bench.device + 4, bench.pinned, kBytes);
  const std::string reason = reason_of([&] { bench.finish(); });
  EXPECT_TRUE(says(reason, "cudaEventSynchronize failed with cudaErrorIllegalAddress"));
  EXPECT_TRUE(says(reason, "run the command again under compute-sanitizer"));
  EXPECT_TRUE(says(reason_of([&] { bench.driver->make_event(); }), "cudaErrorIllegalAddress"));
  EXPECT_TRUE(says(reason_of([&] { bench.driver->free_bytes(); }), "cudaErrorIllegalAddress"));
}

TEST_F(CudaDriver, PlansRunAndOnesOfThePlanBookAreBuiltAgain) {
  Bench bench;
  const DnnGraph graph = bench.relu();
  const std::vector<Candidate> candidates = candidates_for(*bench.driver, graph);
  ASSERT_EQ(candidates.size(), 2U);
  EXPECT_EQ(candidates[0].choice.knobs.size(), 1U);
  const PlanOf plan(bench, graph);
  EXPECT_EQ(plan.plan->workspace_bytes(), candidates[0].workspace_bytes);
  bench.values()[0] = -1;
  bench.values()[1] = 1;
  bench.driver->copy(bench.stream, bench.device, bench.pinned, kBytes);
  plan.execute(bench.stream);
  bench.driver->copy(bench.stream, bench.pinned, bench.device, kBytes);
  bench.finish();
  EXPECT_EQ(bench.values()[0], 0);
  EXPECT_EQ(bench.values()[1], 1);
  EXPECT_TRUE(says(reason_of([&] { bench.driver->build(graph, {.engine = 77, .knobs = {}}); }),
                   "engine 77"));
}

TEST_F(CudaDriver, PlansForItsGpuWhicheverIsTheCurrentOne) {
  fake_cuda_restart("devices=2");
  const std::unique_ptr<Driver> first = driver_library().open(0), second = driver_library().open(1);
  EXPECT_EQ(candidates_for(*first, Bench::relu()).size(), 2U);
  EXPECT_EQ(candidates_for(*second, Bench::relu()).size(), 2U);
}

TEST_F(CudaDriver, ARefusedEngineIsNoCandidate) {
  Bench bench("refuse=0");
  const std::vector<Candidate> left = candidates_for(*bench.driver, bench.relu());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].choice.engine, 2);
}

TEST_F(CudaDriver, AnEngineThatFailsSaysWhichCallAndGpu) {
  Bench bench("break=0");
  const PlanOf plan(bench, bench.relu());
  const std::string reason = reason_of([&] { plan.execute(bench.stream); });
  EXPECT_TRUE(says(reason, "CUDA device 0: cuDNN 9.19.0: cudnnBackendExecute failed with "));
  EXPECT_TRUE(says(reason, "CUDNN_STATUS_EXECUTION_FAILED"));
  bench.finish();
}

/// The first execution of a handle may allocate, which breaks a recording.
TEST_F(CudaDriver, RecordsPlansWithAHandleThatHasExecutedBefore) {
  Bench bench;
  const PlanOf plan(bench, bench.relu());
  const StreamHandle warm = bench.driver->make_stream();
  plan.execute(warm);
  bench.finish(warm);
  bench.driver->destroy(warm);
  const StreamHandle other = bench.driver->make_stream();
  for (const StreamHandle stream : {bench.stream, other, bench.stream}) {
    bench.driver->begin_capture(stream);
    plan.execute(stream);
    const GraphHandle graph = bench.driver->end_capture(stream);
    bench.driver->launch(stream, graph);
    bench.finish(stream);
    bench.driver->destroy(graph);
  }
  bench.driver->destroy(other);
  EXPECT_EQ(fake_cuda_calls("cudnnCreate"), 2) << "one to plan, one to execute";
}

TEST_F(CudaDriver, AHandleWhoseStreamIsBusyIsNotGivenToAnother) {
  Bench bench;
  const PlanOf plan(bench, bench.relu());
  const StreamHandle busy = bench.driver->make_stream();
  plan.execute(busy);
  bench.driver->record(busy, bench.event);
  bench.driver->wait(bench.stream, bench.event);
  bench.driver->destroy(busy);
  const int before = fake_cuda_calls("cudnnCreate");
  plan.execute(bench.stream);
  EXPECT_EQ(fake_cuda_calls("cudnnCreate"), before + 1);
  bench.finish();
}

/// The results of a step, in plain order.
struct Left {
  StepResult result;
  PlainTensors gradients, buffers;
};

/// Runs one enqueued step, and the same step recorded and launched twice.
std::vector<Left> steps_on(std::shared_ptr<Backend> backend, const SmallGraph& small,
                           Precision precision) {
  CompiledGraph compiled(std::move(backend), 0, small.graph,
                         spec_for(small.graph, small.images, precision));
  const PlainWeights weights = uneven_weights(small.graph, 3);
  const PlainBatch batch =
      random_batch(small.graph.input_shape(), small.images, small.classes(), 4);
  std::vector<Left> all;
  compiled.set_weights(weights);
  const StepResult enqueued = compiled.run(Phase::train, batch);
  all.push_back({enqueued, compiled.gradients(), compiled.buffers()});
  Device& device = compiled.device();
  Buffer pixels = device.allocate(batch.pixels.size(), MemoryKind::device);
  Buffer labels = device.allocate(batch.labels.size() * sizeof(std::int32_t), MemoryKind::device);
  Stream& stream = compiled.stream();
  stream.copy(pixels.bytes(), std::as_bytes(std::span(batch.pixels)));
  stream.copy(labels.bytes(), std::as_bytes(std::span(batch.labels)));
  const Batch view{pixels.bytes(),
                   {reinterpret_cast<std::int32_t*>(labels.bytes().data()), batch.labels.size()},
                   batch.valid};
  const std::unique_ptr<Program> program = stream.capture(
      [&] { compiled.executable().run(Phase::train, view, stream, {}, compiled.result()); });
  for (int launch = 0; launch < 2; ++launch) {
    compiled.set_weights(weights);
    program->launch(stream);
    compiled.wait();
    all.push_back({compiled.result(), compiled.gradients(), compiled.buffers()});
  }
  return all;
}

/// Both drivers use the same interpreter and kernel bodies. They differ only in the calls of CUDA
/// and cuDNN.
TEST_F(CudaDriver, TrainsAsTheHostDriverDoes) {
  const BackendEntry& gpu = find_entry(backend_table(), "gpu");
  SteadyClock clock;
  for (const std::string fused : {"off", "on"}) {
    // The stem's form is fixed, because auto depends on times.
    const Options options("gpu", kOptions, {"gpu", {{"fused", fused}, {"stem_blocks", "on"}}});
    for (const SmallGraph& small : small_graphs()) {
      for (const Precision precision : {Precision::f32, Precision::tf32, Precision::f16}) {
        if (fused == "on" && precision != Precision::f16) continue;
        SCOPED_TRACE(fmt::format("{}, precision {}, fused={}", small.name,
                                 static_cast<int>(precision), fused));
        const std::vector<Left> ours = steps_on(gpu.make(options, clock), small, precision);
        const std::vector<Left> expected =
            steps_on(gpu_on_host_backend.make(options, clock), small, precision);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(ours[i].result.loss, expected[i].result.loss) << i;
          EXPECT_EQ(ours[i].gradients, expected[i].gradients) << i;
          EXPECT_EQ(ours[i].buffers, expected[i].buffers) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::gpu
