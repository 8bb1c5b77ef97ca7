// SPDX-License-Identifier: Apache-2.0
// Stages, queues and the split of idle time against known answers, with a simulated clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/analysis/rank_steps.h"
#include "bench/run/run_window.h"
#include "bench/run/runner.h"
#include "dataflow/host_device.h"
#include "dataflow/stage_timer.h"
#include "tests/bench/run/simulated_run.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

// ---- a feeder of stated pace --------------------------------------------------

/// Takes a given time for each batch.
class Paced final : public Feeder {
 public:
  explicit Paced(const FeederContext& context)
      : clock_(context.clock),
        period_(context.options.duration("period")),
        timer_(context.probe.stage({"draw", "feeder thread"}), clock_) {}

  void run(BatchRing& out, std::stop_token stop) override {
    const auto slot = [&] {
      const auto wait = timer_.wait_out();
      return out.acquire(stop);
    };
    while (WriteLease lease = slot()) {
      StageTimer::Item item(timer_);
      clock_.sleep_until(clock_.now() + period_);
      item.done(out.spec().images, 1000);
      std::move(lease).publish();
    }
  }

 private:
  Clock& clock_;
  const Nanoseconds period_;
  StageTimer timer_;
};

constexpr OptionSpec kPacedOptions[] = {{"period", "0ms", "that drawing a batch takes"}};
constexpr FeederEntry kPaced{
    .name = "paced",
    .options = kPacedOptions,
    .make = make_feeder<Paced>,
};

// ---- a device of stated slowness ----------------------------------------------

struct Delays {
  Nanoseconds copy{};  ///< per batch, on the device
  Nanoseconds late{};  ///< of the host, before a stream waits
};

/// Streams of a HostDevice with delays.
class DelayedStream final : public Stream {
 public:
  DelayedStream(std::unique_ptr<Stream> inner, Clock& clock, const Delays& delays)
      : inner_(std::move(inner)), clock_(clock), delays_(delays) {}

  void record(Event& event) override { inner_->record(event); }
  void wait_for(const Event& event) override {
    clock_.sleep_until(clock_.now() + delays_.late);
    inner_->wait_for(event);
  }
  void copy(std::span<std::byte> to, std::span<const std::byte> from) override {
    inner_->copy(to, from);
    static_cast<Timeline*>(inner_->native())->occupy(delays_.copy / 2);  // pixels, labels
  }
  std::unique_ptr<Program> capture(const std::function<void()>& enqueue) override {
    return inner_->capture(enqueue);
  }
  void* native() noexcept override { return inner_->native(); }

 private:
  const std::unique_ptr<Stream> inner_;
  Clock& clock_;
  const Delays delays_;
};

class DelayedDevice final : public Device {
 public:
  DelayedDevice(std::unique_ptr<Device> inner, Clock& clock, const Delays& delays)
      : inner_(std::move(inner)), clock_(clock), delays_(delays) {}
  Buffer allocate(std::size_t bytes, MemoryKind kind) override {
    return inner_->allocate(bytes, kind);
  }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<DelayedStream>(inner_->make_stream(), clock_, delays_);
  }
  std::unique_ptr<Event> make_event() override { return inner_->make_event(); }
  Device& inner() const noexcept { return *inner_; }

 private:
  const std::unique_ptr<Device> inner_;
  Clock& clock_;
  const Delays delays_;
};

/// Steps of 64 images take 5 ms.
class DelayedBackend final : public Backend {
 public:
  DelayedBackend(const Options& options, Clock& clock)
      : clock_(clock), delays_{options.duration("copy"), options.duration("late")} {
    const BackendEntry& entry = find_entry(backend_table(), "emulated");
    const ComponentText text = parse_component("emulated:img_per_s=12800,copy=none");
    inner_ = entry.make(Options(entry.name, entry.options, text), clock);
  }
  std::int32_t device_count() const override { return inner_->device_count(); }
  std::unique_ptr<Device> open(std::int32_t ordinal) override {
    return std::make_unique<DelayedDevice>(inner_->open(ordinal), clock_, delays_);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableSpec& spec,
                                      Device& device) override {
    return inner_->compile(graph, spec, static_cast<DelayedDevice&>(device).inner());
  }
  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice,
                                            const ExecutableSpec& spec, Device& device) override {
    return inner_->make_optimizer(choice, spec, static_cast<DelayedDevice&>(device).inner());
  }

 private:
  Clock& clock_;
  const Delays delays_;
  std::unique_ptr<Backend> inner_;
};

constexpr OptionSpec kDelayedOptions[] = {{"copy", "0ms", "of a batch, on the device"},
                                          {"late", "0ms", "of the host"}};
constexpr BackendEntry kDelayed{
    .name = "delayed",
    .options = kDelayedOptions,
    .make = [](const Options& options, Clock& clock) -> std::unique_ptr<Backend> {
      return std::make_unique<DelayedBackend>(options, clock);
    },
};

class WhereTimeGoes : public SimulatedRun {
 protected:
  WhereTimeGoes() {
    config_.num_batches = 100;
    config_.num_warmup_batches = 20;  // reserves are used up by then
  }

  RunResult run(const std::string& feeder, const std::string& device) {
    config_.fake_location = feeder;
    config_.device = device;
    RunResult result = SimulatedRun::run(&kPaced, &kDelayed);
    EXPECT_EQ(result.step_ms.size(), 100U) << result.reason;
    return result;
  }

  /// In steady state, the idle time of each step is the sum of these, in ms.
  static void expect_split(const RunResult& result, double starved, double copying, double late) {
    ASSERT_EQ(result.starved_ms.size(), result.device_idle_ms.size());
    ASSERT_EQ(result.copy_exposed_ms.size(), result.device_idle_ms.size());
    ASSERT_EQ(result.late_ms.size(), result.device_idle_ms.size());
    for (std::size_t step = 0; step < result.device_idle_ms.size(); ++step) {
      EXPECT_NEAR(result.starved_ms[step] + result.copy_exposed_ms[step] + result.late_ms[step],
                  result.device_idle_ms[step], 1e-9);
      if (step < 4) continue;  // the initial contents of the rings are used up
      EXPECT_NEAR(result.starved_ms[step], starved, 1e-9) << step;
      EXPECT_NEAR(result.copy_exposed_ms[step], copying, 1e-9) << step;
      EXPECT_NEAR(result.late_ms[step], late, 1e-9) << step;
    }
  }
};

// ---- idle time ----------------------------------------------------------------

TEST_F(WhereTimeGoes, IdleTimeIsSplitByWhatTheDeviceWaitedFor) {
  struct Case {
    const char *what, *feeder, *device;
    double starved = 0, copying = 0, late = 0;
  };
  for (const Case& each : {
           Case{"everything is in time", "paced", "delayed"},
           Case{"everything is just in time", "paced:period=4ms", "delayed:copy=3ms"},
           Case{"a slow feeder starves the device", "paced:period=8ms", "delayed", 3},
           Case{"a slow copy is exposed", "paced", "delayed:copy=8ms", 0, 3},
           Case{"a late batch is waited for, then its copy", "paced:period=8ms", "delayed:copy=2ms",
                1, 2},
           Case{"a host that enqueues too slowly is late", "paced", "delayed:late=7ms", 0, 0, 2},
       }) {
    SCOPED_TRACE(each.what);
    expect_split(run(each.feeder, each.device), each.starved, each.copying, each.late);
  }
}

/// The device takes 5 ms for a step and the loader 200 ms for a batch, so the window begins with a
/// wait.
TEST_F(WhereTimeGoes, TheWaitOfTheFirstStepOfAWindowIsNoComputing) {
  const RunResult result = run("paced:period=200ms", "delayed");
  EXPECT_NEAR(result.step_ms.front(), 200, 1e-9);
  EXPECT_NEAR(result.starved_ms.front(), 195, 1e-9);
  EXPECT_NEAR(result.device_idle_percent, 100 * 195 / 200.0, 1e-9);
  const auto compute = std::ranges::find(result.parts, "compute", &PartTimes::name);
  ASSERT_NE(compute, result.parts.end());
  EXPECT_NEAR(compute->p50, 5, 1e-9);
  EXPECT_NEAR(compute->max, 5, 1e-9);
}

TEST_F(WhereTimeGoes, ACopyThatHasNoSlotToItselfIsExposed) {
  config_.device_slots = 1;
  expect_split(run("paced", "delayed:copy=2ms"), 0, 2, 0);
}

TEST_F(WhereTimeGoes, OfSeveralDevicesTheLastOneToStartSaysWhy) {
  std::vector<Leg> ranks(2);
  StepTimes early, late;
  late.start = late.offered = late.copied = 2ms;
  early.completion = late.completion = 12ms;
  ranks[0].steps.push_back(early);
  ranks[1].steps.push_back(late);
  early.start = 14ms;
  early.offered = 13ms;
  late.start = 22ms;
  late.offered = 15ms;
  late.copied = 20ms;
  early.completion = late.completion = 32ms;
  ranks[0].steps.push_back(late);
  ranks[1].steps.push_back(early);
  RunResult result;
  add_steps({.legs = {ranks}}, result);
  EXPECT_EQ(result.device_idle_ms, (std::vector<double>{2, 10}));
  EXPECT_EQ(result.starved_ms, (std::vector<double>{2, 3}));
  EXPECT_EQ(result.copy_exposed_ms, (std::vector<double>{0, 5}));
  EXPECT_EQ(result.late_ms, (std::vector<double>{0, 2}));
  EXPECT_TRUE(result.exchange_exposed_ms.empty());
  ASSERT_EQ(result.parts.size(), 5U);
  EXPECT_EQ(result.parts[3].name, "compute");
  EXPECT_DOUBLE_EQ(result.parts[3].p50, 10) << "both steps compute for 10 ms";
}

// ---- stages and queues --------------------------------------------------------

TEST_F(WhereTimeGoes, StagesSayWhatTheyTookAndWaitedFor) {
  const RunResult result = run("paced:period=4ms", "delayed:copy=3ms");
  ASSERT_EQ(result.stages.size(), 2U);
  const StageUse &draw = result.stages[0], &copy = result.stages[1];
  EXPECT_EQ(draw.name, "draw");
  EXPECT_EQ(draw.workers, "feeder thread");
  EXPECT_EQ(draw.threads, 1);
  EXPECT_NEAR(static_cast<double>(draw.items), 100, 1);
  EXPECT_EQ(draw.timed_items, draw.items);
  EXPECT_EQ(draw.images, 64 * draw.items);
  EXPECT_EQ(draw.bytes, 1000 * draw.items);
  EXPECT_NEAR(draw.wall_s, 4e-3 * static_cast<double>(draw.items), 1e-9);
  EXPECT_NEAR(draw.wall_s + draw.wait_out_s, result.window_s, 4e-3);
  EXPECT_EQ(draw.wait_in_s, 0);
  EXPECT_EQ(copy.name, "copy");
  EXPECT_EQ(copy.workers, "stager");
  EXPECT_NEAR(static_cast<double>(copy.items), 100, 1);
  EXPECT_NEAR(copy.wall_s, 3e-3 * static_cast<double>(copy.items), 1e-9);
  EXPECT_EQ(copy.bytes, (64 * 12 + 64 * 4) * copy.items);
  EXPECT_GT(result.instrumentation_s, 0);
}

TEST_F(WhereTimeGoes, StagersOfSeveralDevicesAddUp) {
  config_.num_gpus = 2;
  const RunResult result = run("paced:period=8ms", "delayed:copy=1ms");
  ASSERT_EQ(result.stages.size(), 2U);
  const StageUse& copy = result.stages[1];
  EXPECT_EQ(copy.threads, 2);
  EXPECT_NEAR(static_cast<double>(copy.items), 200, 2);
  // Copying uses no thread of the host.
  EXPECT_NEAR(copy.wait_in_s + copy.wait_out_s, 2 * result.window_s, 1e-9);
  ASSERT_EQ(result.queues.size(), 3U);
  EXPECT_EQ(result.queues[2].name, "device ring 1");
}

TEST_F(WhereTimeGoes, QueuesBehindASlowFeederAreEmpty) {
  const RunResult result = run("paced:period=8ms", "delayed");
  ASSERT_EQ(result.queues.size(), 2U);
  const QueueUse& host = result.queues[0];
  EXPECT_EQ(host.name, "host ring");
  EXPECT_EQ(host.slots, 3);
  EXPECT_NEAR(host.mean_filled, 0, 0.05);
  EXPECT_NEAR(host.empty_percent, 100, 2);
  EXPECT_EQ(host.producer_wait_s, 0);
  EXPECT_NEAR(host.consumer_wait_s, result.window_s, 0.02);
  EXPECT_EQ(result.queues[1].name, "device ring 0");
}

TEST_F(WhereTimeGoes, QueuesBehindAFastFeederAreFull) {
  const RunResult result = run("paced", "delayed");
  const QueueUse& host = result.queues.at(0);
  EXPECT_NEAR(host.mean_filled, 3, 1e-9);
  EXPECT_NEAR(host.full_percent, 100, 1e-9);
  EXPECT_EQ(host.empty_percent, 0);
  EXPECT_NEAR(host.producer_wait_s, result.window_s, 1e-9);
  ASSERT_EQ(host.filled.size(), 200U);
  for (const double filled : host.filled) EXPECT_NEAR(filled, 3, 1e-9);
}

TEST_F(WhereTimeGoes, WithoutInstrumentsThereIsNeither) {
  config_.instrument = false;
  const RunResult result = run("paced:period=8ms", "delayed");
  EXPECT_TRUE(result.stages.empty());
  EXPECT_TRUE(result.queues.empty());
  EXPECT_EQ(result.instrumentation_s, 0);
  expect_split(result, 3, 0, 0);
}

TEST(StageSums, LeaveOutWhatLiesBetweenLegs) {
  Probe probe;
  StageCounters& draw = probe.stage({"draw", "feeder thread"});
  const auto at = [&](std::int64_t items, std::int64_t waited) {
    draw.items.add(items);
    draw.timed_items.add(items / 2);
    draw.cpu_ns.add(1'000'000 * items);
    draw.wait_in.add(Nanoseconds(waited));
    Snapshot snapshot;
    snapshot.stages = stage_sums(probe, Time{});
    return snapshot;
  };
  RunWindow window;
  for (int leg = 0; leg < 2; ++leg) {
    Snapshot begin = at(1000, 1'000'000'000), end = at(20, 3'000'000);
    window.legs.push_back(
        {.begin = std::move(begin), .end = std::move(end), .log = {}, .ranks = {}});
  }
  const std::vector<StageUse> uses = stage_uses(probe, window.stages());
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses[0].items, 40);
  EXPECT_EQ(uses[0].timed_items, 20);
  EXPECT_NEAR(uses[0].cpu_s, 2 * 0.040, 1e-12);  // every other item was timed
  EXPECT_NEAR(uses[0].wait_in_s, 0.006, 1e-12);
  const TimingCost cost{.item = 10ns, .timing = 100ns, .wait = 30ns};
  EXPECT_NEAR(instrumentation_seconds(cost, window.stages()), 1e-9 * (400 + 2000 + 60), 1e-15);
}

}  // namespace
}  // namespace penstock
