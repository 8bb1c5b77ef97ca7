// SPDX-License-Identifier: Apache-2.0
// The recordings of HostStreams.
#include <stdexcept>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "tests/support/gpu/host_stream_state.h"

namespace penstock::gpu {

HostStreams::Recording* HostStreams::open_recording() const {
  for (const std::shared_ptr<Recording>& recording : recordings_) {
    if (recording->thread == std::this_thread::get_id()) return recording.get();
  }
  return nullptr;
}

/// The recording that takes what this thread enqueues on the stream; null: it is to run.
HostStreams::Recording* HostStreams::recording_of(const Stream& stream) {
  rethrow_failure();
  Recording* const recording = open_recording();
  if (recording != stream.recording.get()) {
    throw std::logic_error(
        "cannot enqueue on this stream: the thread records another stream, or another thread "
        "records this one; let the stream wait for an event of the recording first, or end that");
  }
  return recording;
}

/// A stream that waits for an event of this thread's recording becomes a part of that.
void HostStreams::join_recording(Stream& stream, const Event& event) {
  Recording* const recording = open_recording();
  if (recording == nullptr || stream.recording != nullptr || event.last == nullptr ||
      event.last->recording.get() != recording) {
    return;
  }
  stream.lane = recording->lanes.size();
  stream.recording = event.last->recording;
  recording->add_lane(stream);
}

void HostStreams::forbid_in_capture(const char* what) {
  if (open_recording() == nullptr) return;
  throw std::logic_error(std::string("this thread records a stream, and ") + what +
                         " cannot be part of a recording; do it before or after");
}

void HostStreams::begin_capture(StreamHandle handle) {
  Stream& stream = of(handle);
  rethrow_failure();
  forbid_in_capture("another recording");
  PENSTOCK_ASSERT(stream.recording == nullptr);
  stream.recording = std::make_shared<Recording>();
  stream.lane = 0;
  stream.recording->add_lane(stream);
  recordings_.push_back(stream.recording);
}

void HostStreams::close(Recording& recording) noexcept {
  const std::vector<Stream*> lanes = std::exchange(recording.lanes, {});
  std::erase_if(recordings_, [&](const auto& other) { return other.get() == &recording; });
  for (Stream* const lane : lanes) lane->recording = nullptr;
}

void HostStreams::abandon_capture(StreamHandle handle) noexcept {
  if (const std::shared_ptr<Recording> recording = of(handle).recording) close(*recording);
}

GraphHandle HostStreams::end_capture(StreamHandle handle) {
  Stream& stream = of(handle);
  const std::shared_ptr<Recording> recording = stream.recording;
  if (recording == nullptr || recording.get() != open_recording() || stream.lane != 0) {
    throw std::logic_error(
        "cannot end a recording that this thread did not begin on this stream; begin one");
  }
  const bool joined = recording->joined();
  const std::size_t lanes = recording->lanes.size();
  close(*recording);
  rethrow_failure();
  if (!joined) {
    throw std::logic_error(
        "cannot end the recording: a stream that joined it has work that the first stream does not "
        "wait for; let it wait for an event recorded after that");
  }
  auto graph = std::make_unique<Graph>();
  graph->recording = recording;
  graph->lanes.push_back(nullptr);
  while (graph->lanes.size() < lanes) graph->lanes.push_back(&add_stream());
  return reinterpret_cast<GraphHandle>(graph.release());
}

void HostStreams::launch(StreamHandle handle, GraphHandle graph_handle) {
  Stream& stream = of(handle);
  rethrow_failure();
  forbid_in_capture("the launch of another recording");
  PENSTOCK_ASSERT(recording_of(stream) == nullptr);
  const Graph& graph = *reinterpret_cast<const Graph*>(graph_handle);
  std::vector<std::shared_ptr<Record>> records(graph.recording->records);
  for (const Recording::Item& item : graph.recording->items) {
    Stream& lane = item.lane == 0 ? stream : *graph.lanes[item.lane];
    if (item.operation != nullptr) {
      push(lane, item.operation);
    } else if (item.waits) {
      push_wait(lane, records[item.record]);
    } else {
      records[item.record] = std::make_shared<Record>();
      push_record(lane, records[item.record]);
    }
  }
}

void HostStreams::destroy(GraphHandle handle) noexcept {
  const std::unique_ptr<Graph> graph(reinterpret_cast<Graph*>(handle));
  for (Stream* const lane : graph->lanes) {
    if (lane != nullptr) remove(*lane);
  }
}

}  // namespace penstock::gpu
