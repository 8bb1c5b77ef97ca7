// SPDX-License-Identifier: Apache-2.0
#include "bench/run/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// Spans of feeding and staging: a few per image.
constexpr std::size_t kSpansPerStep = 4096, kMostSpans = std::size_t{1} << 18;
/// Depth records of rings: two per batch and ring.
constexpr std::size_t kDepthsPerStep = 256, kMostDepths = std::size_t{1} << 17;
/// Up to this many steps are traced per kernel; longer traces record whole programs only.
constexpr std::size_t kMostStepsOfOperations = 200;

// Chrome's processes: one for feeding, one per rank, one for each device's activity records.
constexpr std::int32_t kFeeding = 1, kFirstRank = 2, kFirstDevice = 10'000;
enum RankTrack : std::int32_t { kHost = 1, kDevice = 2, kStager = 3 };

double microseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

std::string process_name(std::int32_t process) {
  if (process == kFeeding) return "feeding";
  if (process >= kFirstDevice) return fmt::format("device {}", process - kFirstDevice);
  return fmt::format("rank {}", process - kFirstRank);
}

std::string thread_name(std::int32_t process, std::int32_t thread) {
  if (process >= kFirstDevice) return fmt::format("stream {}", thread);
  constexpr const char* kNames[] = {"", "host", "device", "stager"};
  return kNames[thread];
}

Json name_event(const char* kind, std::int32_t process, std::int32_t thread,
                const std::string& name) {
  return {
      {"ph", "M"}, {"name", kind}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

Trace::Trace(std::size_t steps, const Clock& clock)
    : steps_(steps),
      steps_left_(steps),
      spans_(std::min(kMostSpans, steps * kSpansPerStep), clock),
      depths_(std::min(kMostDepths, steps * kDepthsPerStep)) {}

void Trace::watch(BatchRing& ring, std::string name, std::int32_t rank) {
  ring.monitor().log_depths(depths_, static_cast<std::int32_t>(rings_.size()));
  rings_.push_back({&ring, std::move(name), rank});
}

void Trace::begin_leg(DeviceMonitor& devices, Probe& probe) {
  const auto detail =
      steps_ > kMostStepsOfOperations ? ActivityDetail::programs : ActivityDetail::operations;
  const std::string reason = devices.start_activity(detail);
  if (!reason.empty()) probe.note("the trace has no kernels: " + reason);
  spans_.open();
  depths_.open();
  for (const WatchedRing& each : rings_) each.ring->monitor().log_depth();
}

void Trace::end_leg(DeviceMonitor& devices, std::span<const Leg> ranks) {
  spans_.close();
  depths_.close();
  std::size_t steps = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    add_steps(static_cast<std::int32_t>(rank), ranks[rank]);
    steps = std::max(steps, ranks[rank].steps.size());
  }
  steps_left_ -= std::min(steps_left_, steps);
  if (emulated_.first != nullptr) profile_.add_by_arithmetic(*emulated_.first, emulated_.second);
  for (ActivityRecord& record : devices.finish_activity()) {
    profile_.add(record.name, record.end - record.begin);
    Event event{std::move(record.name), record.begin, record.end};
    if (record.bytes > 0) event.arguments["bytes"] = static_cast<std::int64_t>(record.bytes);
    tracks_[{kFirstDevice + record.device, static_cast<std::int32_t>(record.stream)}].push_back(
        std::move(event));
  }
}

void Trace::add_steps(std::int32_t rank, const Leg& leg) {
  std::vector<Event>& host = tracks_[{kFirstRank + rank, kHost}];
  std::vector<Event>& device = tracks_[{kFirstRank + rank, kDevice}];
  for (const StepTimes& step : leg.steps) {
    const std::map<std::string, std::int64_t> number{
        {"step", static_cast<std::int64_t>(device.size())}};
    const Time got = step.requested + step.input_wait;
    host.push_back({"wait for a batch", step.requested, got, number});
    host.push_back({"enqueue the step", got, got + step.enqueue, number});
    Event& event = device.emplace_back(
        Event{"step", leg.begin + step.start, leg.begin + step.completion, number});
    event.arguments["idle_ns"] = step.device_idle.count();
    profile_.add_step(step.completion - step.start);
  }
}

void Trace::add_spans(Tracks& tracks) const {
  for (const Span& span : spans_.entries()) {
    const Place place = span.work == Work::feeding ? Place{kFeeding, span.thread}
                                                   : Place{kFirstRank + span.rank, kStager};
    tracks[place].push_back({span.name, span.begin, span.end});
  }
}

/// Names of the feeders' threads, by their most frequent work: "decode thread 0".
std::map<std::int32_t, std::string> Trace::feeding_threads(const Tracks& tracks) const {
  std::map<std::int32_t, std::string> names;
  std::map<std::string, int> numbers;
  for (const auto& [place, events] : tracks) {
    if (place.first != kFeeding) continue;
    std::map<std::string, Nanoseconds> times;
    for (const Event& event : events) {
      if (!event.name.starts_with("wait")) times[event.name] += event.end - event.begin;
    }
    const auto most =
        std::ranges::max_element(times, {}, [](const auto& each) { return each.second; });
    const std::string work = most == times.end() ? "feeding" : most->first;
    const std::string word = work.substr(0, work.find(' '));
    names[place.second] = fmt::format("{} thread {}", word, numbers[word]++);
  }
  return names;
}

/// Sorted by time.
std::vector<nlohmann::ordered_json> Trace::counter_events() const {
  std::vector<Depth> depths(depths_.entries().begin(), depths_.entries().end());
  std::ranges::stable_sort(depths, {}, &Depth::time);
  std::vector<Json> events;
  for (const Depth& depth : depths) {
    const WatchedRing& ring = rings_[static_cast<std::size_t>(depth.ring)];
    events.push_back({{"ph", "C"},
                      {"name", ring.name},
                      {"pid", ring.rank < 0 ? kFeeding : kFirstRank + ring.rank},
                      {"ts", microseconds(depth.time.time_since_epoch())},
                      {"args", {{"batches", depth.filled}}}});
  }
  return events;
}

void Trace::write(std::ostream& out) const {
  Tracks tracks = tracks_;
  add_spans(tracks);
  const std::map<std::int32_t, std::string> feeding = feeding_threads(tracks);
  out << "{\"displayTimeUnit\":\"ms\",\"otherData\":"
      << Json{{"clock", "steady"},
              {"dropped_spans", spans_.dropped()},
              {"dropped_depths", depths_.dropped()}}
             .dump()
      << ",\"traceEvents\":[\n";
  std::int32_t named = 0;
  const char* separator = "";
  const auto write_event = [&](const Json& json) {
    out << std::exchange(separator, ",\n")
        << json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  for (auto& [place, events] : tracks) {
    const auto [process, thread] = place;
    if (std::exchange(named, process) != process) {
      write_event(name_event("process_name", process, 0, process_name(process)));
    }
    write_event(
        name_event("thread_name", process, thread,
                   process == kFeeding ? feeding.at(thread) : thread_name(process, thread)));
    // An enclosing range must precede the ranges inside it.
    std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    for (const Event& event : events) {
      write_event({{"ph", "X"},
                   {"name", event.name},
                   {"pid", process},
                   {"tid", thread},
                   {"ts", microseconds(event.begin.time_since_epoch())},
                   {"dur", microseconds(event.end - event.begin)},
                   {"args", event.arguments}});
    }
  }
  for (const Json& json : counter_events()) write_event(json);
  out << "\n]}\n";
  out.flush();
  if (!out) {
    throw DataError(
        "the trace was not written completely; free space on its disk, or name another "
        "--trace-file");
  }
}

}  // namespace penstock
