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

/// The recording that stores the work of this thread on the stream. Null: the work runs.
HostStreams::Recording* HostStreams::recording_of(const Stream& stream) {
  rethrow_failure();
  Recording* const recording = open_recording();
  if (recording != stream.recording.get()) {
    throw std::logic_error(
        "cannot enqueue on this stream: the thread records another stream, or another thread "
        "records this one; end the recording first");
  }
  return recording;
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
  stream.recording->stream = &stream;
  recordings_.push_back(stream.recording);
}

void HostStreams::close(Recording& recording) noexcept {
  std::erase_if(recordings_, [&](const auto& other) { return other.get() == &recording; });
  std::exchange(recording.stream, nullptr)->recording = nullptr;
}

void HostStreams::abandon_capture(StreamHandle handle) noexcept {
  if (const std::shared_ptr<Recording> recording = of(handle).recording) close(*recording);
}

GraphHandle HostStreams::end_capture(StreamHandle handle) {
  const std::shared_ptr<Recording> recording = of(handle).recording;
  if (recording == nullptr || recording.get() != open_recording()) {
    throw std::logic_error(
        "cannot end a recording that this thread did not begin on this stream; begin one");
  }
  close(*recording);
  rethrow_failure();
  return reinterpret_cast<GraphHandle>(new Graph{recording});
}

void HostStreams::launch(StreamHandle handle, GraphHandle graph) {
  Stream& stream = of(handle);
  rethrow_failure();
  forbid_in_capture("the launch of another recording");
  PENSTOCK_ASSERT(recording_of(stream) == nullptr);
  for (const Recording::Item& item : reinterpret_cast<const Graph*>(graph)->recording->items) {
    if (item.operation != nullptr) {
      push(stream, item.operation);
    } else if (item.waits) {
      push_wait(stream, *item.event);
    } else {
      push_record(stream, *item.event);
    }
  }
}

void HostStreams::destroy(GraphHandle graph) noexcept { delete reinterpret_cast<Graph*>(graph); }

}  // namespace penstock::gpu
