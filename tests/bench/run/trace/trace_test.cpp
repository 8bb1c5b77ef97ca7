// SPDX-License-Identifier: Apache-2.0
// Traces of runs with a simulated clock must be exact.
#include "bench/run/trace/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/run/runner.h"
#include "dataflow/error.h"
#include "tests/support/tiny_model.h"
#include "tests/support/virtual_clock.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// One event of a trace, in nanoseconds.
struct Event {
  std::string name;
  std::int64_t begin = 0, end = 0;
  nlohmann::json arguments;
};
using Track = std::vector<Event>;

/// The levels of rings after each change, by "process / ring", in the order of the file.
struct Level {
  std::int64_t time = 0;
  int batches = 0;
};
std::map<std::string, std::vector<Level>> parse_counters(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  std::map<int, std::string> processes;
  std::map<std::string, std::vector<Level>> counters;
  for (const auto& event : json.at("traceEvents")) {
    const int process = event.at("pid");
    if (event.at("name") == "process_name") processes[process] = event.at("args").at("name");
    if (event.at("ph") != "C") continue;
    const std::string name = event.at("name");
    counters[processes.at(process) + " / " + name].push_back(
        {std::llround(1e3 * event.at("ts").get<double>()), event.at("args").at("batches")});
  }
  return counters;
}

/// Tracks by "process / thread", in the order of the file.
std::map<std::string, Track> parse(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  std::map<std::string, Track> tracks;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "C") continue;
    const int process = event.at("pid"), thread = event.at("tid");
    if (event.at("ph") == "M") {
      const std::string name = event.at("args").at("name");
      if (event.at("name") == "process_name") processes[process] = name;
      if (event.at("name") == "thread_name") threads[{process, thread}] = name;
      continue;
    }
    EXPECT_EQ(event.at("ph"), "X");
    const double begin = 1e3 * event.at("ts").get<double>();
    const double length = 1e3 * event.at("dur").get<double>();
    tracks[processes.at(process) + " / " + threads.at({process, thread})].push_back(
        {event.at("name"), std::llround(begin), std::llround(begin) + std::llround(length),
         event.at("args")});
  }
  return tracks;
}

std::set<std::string> names_in(const Track& track) {
  std::set<std::string> names;
  for (const Event& event : track) names.insert(event.name);
  return names;
}

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() {
    config_.device = "emulated:img_per_s=12800";  // 5 ms for 64 images
    config_.fake_location = "cpu";
    config_.num_gpus = 2;
    config_.num_batches = 200;
  }

  std::map<std::string, Track> run(std::size_t steps) {
    VirtualClock clock;
    Trace trace(steps, clock);
    RunListener silent;
    Runner::Components components = find_components(config_);
    components.model = &kTinyModel;
    result_ = Runner(config_, clock, components, &trace).run(silent, {});
    EXPECT_EQ(result_.status, Status::ok) << result_.reason;
    EXPECT_EQ(trace.steps_left(), 0U);
    std::ostringstream text;
    trace.write(text);
    text_ = text.str();
    return parse(text_);
  }

  RunConfig config_;
  RunResult result_;
  std::string text_;
};

TEST_F(TraceTest, StepsOnAnEmulatedDeviceLastAsLongAsPrescribed) {
  const auto tracks = run(20);
  for (const char* name : {"rank 0 / device", "rank 1 / device"}) {
    const Track& steps = tracks.at(name);
    ASSERT_EQ(steps.size(), 20U) << name;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      EXPECT_EQ(steps[step].name, "step");
      EXPECT_EQ(steps[step].arguments.at("step"), step);
      EXPECT_EQ(steps[step].arguments.at("idle_ns"), 0);
      EXPECT_EQ(steps[step].end - steps[step].begin, 5'000'000) << name << " " << step;
      const std::int64_t before = steps[step > 0 ? step - 1 : 0].end;
      EXPECT_EQ(steps[step].begin, step > 0 ? before : steps[0].begin) << name << " " << step;
    }
  }
}

TEST_F(TraceTest, EventsOfATrackAreInOrderAndNest) {
  for (const auto& [name, track] : run(20)) {
    std::vector<const Event*> open;
    std::int64_t before = 0;
    for (const Event& event : track) {
      EXPECT_GE(event.begin, before) << name;
      EXPECT_GE(event.end, event.begin) << name;
      before = event.begin;
      while (!open.empty() && open.back()->end <= event.begin) open.pop_back();
      const std::int64_t most = open.empty() ? event.end : open.back()->end;
      EXPECT_LE(event.end, most) << name << " " << event.name;
      open.push_back(&event);
    }
  }
}

TEST_F(TraceTest, ShowsWhatHostStagerAndFeederDo) {
  const auto tracks = run(20);
  EXPECT_EQ(names_in(tracks.at("rank 1 / host")),
            (std::set<std::string>{"wait for a batch", "enqueue the step"}));
  EXPECT_EQ(names_in(tracks.at("rank 1 / stager")),
            (std::set<std::string>{"wait for a slot", "wait for a batch", "copy"}));
  std::set<std::string> feeding;
  for (const auto& [name, track] : tracks) {
    if (name.starts_with("feeding / ")) feeding.merge(names_in(track));
  }
  EXPECT_EQ(feeding, std::set<std::string>{"draw"});
  EXPECT_TRUE(tracks.contains("feeding / draw thread 0")) << text_;
}

TEST_F(TraceTest, ShowsHowFullEveryRingIsOnTheSameClock) {
  const auto tracks = run(20);
  const auto counters = parse_counters(text_);
  ASSERT_EQ(counters.size(), 3U);
  const Track& steps = tracks.at("rank 0 / device");
  for (const auto& [name, levels] : counters) {
    const int slots = name == "feeding / host ring" ? config_.prefetch : config_.device_slots;
    EXPECT_GE(levels.size(), 20U) << name;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      EXPECT_GE(levels[i].batches, 0) << name;
      EXPECT_LE(levels[i].batches, slots) << name;
      if (i == 0) continue;
      EXPECT_GE(levels[i].time, levels[i - 1].time) << name;
      EXPECT_LE(std::abs(levels[i].batches - levels[i - 1].batches), 1) << name << " " << i;
    }
    EXPECT_LE(levels.front().time, steps.front().begin) << name;
    EXPECT_LE(levels.back().time, steps.back().end) << name;
  }
}

TEST_F(TraceTest, TheHostEnqueuesAStepBeforeTheDeviceDoesIt) {
  const auto tracks = run(20);
  const Track &host = tracks.at("rank 0 / host"), &device = tracks.at("rank 0 / device");
  ASSERT_EQ(host.size(), 2 * device.size());
  for (std::size_t step = 0; step < device.size(); ++step) {
    EXPECT_EQ(host[2 * step].arguments.at("step"), step);
    EXPECT_EQ(host[2 * step].end, host[2 * step + 1].begin);
    EXPECT_LE(host[2 * step + 1].end, device[step].begin) << step;
  }
}

TEST_F(TraceTest, LeavesTheRestOfTheWindowAsItWas) {
  run(20);
  ASSERT_EQ(result_.step_ms.size(), 200U);
  for (const double step : result_.step_ms) EXPECT_NEAR(step, 5, 1e-9);
  EXPECT_NEAR(result_.img_per_s, 2 * 12800, 1e-6);
}

// ---- what a backend records --------------------------------------------------

/// Devices that only record activity.
class Recording final : public DeviceMonitor {
 public:
  std::string start_activity(ActivityDetail requested) override {
    detail = requested;
    return refuses;
  }
  std::vector<ActivityRecord> finish_activity() override { return std::move(records); }

  ActivityDetail detail{};
  std::string refuses;
  std::vector<ActivityRecord> records;
};

TEST(Trace, TakesTheRecordsOfTheDevice) {
  VirtualClock clock;
  const Time begin = clock.now();
  Trace trace(1, clock);
  Probe probe;
  Recording backend;
  backend.records = {
      {ActivityKind::copy, "copy to the device", 0, 7, begin + 30ns, begin + 40ns, 1024},
      {ActivityKind::kernel, "normalise<\"f16\">", 0, 7, begin, begin + 25ns, 0}};
  trace.begin_leg(backend, probe);
  trace.end_leg(backend, std::vector<Leg>{});
  std::ostringstream text;
  trace.write(text);
  const auto tracks = parse(text.str());
  const Track& stream = tracks.at("device 0 / stream 7");
  ASSERT_EQ(stream.size(), 2U);
  EXPECT_EQ(stream[0].name, "normalise<\"f16\">");
  EXPECT_EQ(stream[0].begin, begin.time_since_epoch().count());
  EXPECT_EQ(stream[0].end - stream[0].begin, 25);
  EXPECT_EQ(stream[1].arguments.at("bytes"), 1024);
  EXPECT_TRUE(probe.notes().empty());
}

TEST(Trace, ShowsWholeProgramsWhereStepsAreMany) {
  VirtualClock clock;
  Probe probe;
  for (const std::size_t steps : {200U, 201U}) {
    Recording backend;
    Trace(steps, clock).begin_leg(backend, probe);
    EXPECT_EQ(backend.detail, steps == 200 ? ActivityDetail::operations : ActivityDetail::programs);
  }
}

TEST(Trace, SaysWhyItHasNoKernels) {
  VirtualClock clock;
  Probe probe;
  Recording backend;
  backend.refuses = "another profiler watches this process";
  Trace(1, clock).begin_leg(backend, probe);
  ASSERT_EQ(probe.notes().size(), 1U);
  EXPECT_EQ(probe.notes().front(),
            "the trace has no kernels: another profiler watches this process");
}

TEST(Trace, ThatCannotBeWrittenIsAnError) {
  VirtualClock clock;
  std::ofstream full("/dev/full");
  EXPECT_THROW(Trace(1, clock).write(full), DataError);
}

}  // namespace
}  // namespace penstock
