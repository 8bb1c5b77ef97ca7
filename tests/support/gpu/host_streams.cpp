// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_streams.h"

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

#include "dataflow/error.h"

namespace penstock::gpu {

/// The work that a thread enqueues on a stream between begin_capture and end_capture.
struct HostStreams::Recording {
  struct Item {
    Operation operation{};           ///< null: records an event, or waits for one
    std::shared_ptr<Event> event{};  ///< looked up at each launch
    bool waits = false;
  };
  std::thread::id thread = std::this_thread::get_id();
  Stream* stream = nullptr;  ///< null after the recording has ended
  std::vector<Item> items{};
};

/// One moment at which an event was recorded.
struct HostStreams::Record {
  Stream* stream = nullptr;  ///< null once it is reached
  bool reached = false;
  Nanoseconds at{0};
  VectorClock seen;
};

struct HostStreams::Item {
  Operation operation{};  ///< null: records an event, or waits for one
  std::shared_ptr<Record> record{};
  bool waits = false;
  Moment moment{};
  Nanoseconds earliest{0};
};

struct HostStreams::Stream {
  std::size_t component = 0;
  std::deque<Item> queue;
  Nanoseconds now{0};
  std::shared_ptr<Recording> recording;  ///< null: enqueued work runs

  const Record* blocked_by() const {
    return queue.front().waits && !queue.front().record->reached ? queue.front().record.get()
                                                                 : nullptr;
  }
};

struct HostStreams::Event {
  std::shared_ptr<Record> last;
};

struct HostStreams::Graph {
  std::shared_ptr<const Recording> recording;
};

HostStreams::HostStreams(Timing timing, std::uint64_t seed, Cost cost, Nanoseconds enqueueing,
                         HostMemory& memory, HappensBefore& order)
    : timing_(timing),
      random_(seed),
      cost_(std::move(cost)),
      enqueueing_(enqueueing),
      memory_(memory),
      order_(order) {}

HostStreams::~HostStreams() = default;

HostStreams::Stream& HostStreams::of(StreamHandle stream) {
  PENSTOCK_ASSERT(stream != nullptr);
  return *reinterpret_cast<Stream*>(stream);
}
/// A recording may outlive the handle of an event that it records.
const std::shared_ptr<HostStreams::Event>& HostStreams::of(EventHandle event) {
  PENSTOCK_ASSERT(event != nullptr);
  return *reinterpret_cast<const std::shared_ptr<Event>*>(event);
}

StreamHandle HostStreams::make_stream() {
  rethrow_failure();
  streams_.push_back(std::make_unique<Stream>());
  streams_.back()->component = order_.add_stream();
  return reinterpret_cast<StreamHandle>(streams_.back().get());
}

void HostStreams::destroy(StreamHandle handle) noexcept {
  Stream& stream = of(handle);
  if (stream.recording != nullptr) close(*stream.recording);
  while (!stream.queue.empty()) advance(stream);
  std::erase_if(streams_, [&](const auto& other) { return other.get() == &stream; });
}

void HostStreams::enqueue(StreamHandle handle, HostOperation operation) {
  Stream& stream = of(handle);
  Recording* const recording = recording_of(stream);
  if (recording == nullptr) {
    host_now_ += enqueueing_;
    push(stream, std::make_shared<const HostOperation>(std::move(operation)));
    return;
  }
  if (operation.pageable) forbid_in_capture("a copy from or to pageable memory");
  recording->items.push_back(
      {.operation = std::make_shared<const HostOperation>(std::move(operation))});
}

void HostStreams::push(Stream& stream, Operation operation) {
  stream.queue.push_back({.operation = std::move(operation),
                          .moment = order_.enqueue(stream.component),
                          .earliest = host_now_});
  after_enqueue();
}

bool HostStreams::is_idle(StreamHandle stream) const { return of(stream).queue.empty(); }

EventHandle HostStreams::make_event() {
  rethrow_failure();
  return reinterpret_cast<EventHandle>(new std::shared_ptr<Event>(std::make_shared<Event>()));
}

void HostStreams::destroy(EventHandle event) noexcept { delete &of(event); }

void HostStreams::record(StreamHandle handle, EventHandle event) {
  Stream& stream = of(handle);
  if (Recording* const recording = recording_of(stream)) {
    recording->items.push_back({.event = of(event)});
  } else {
    push_record(stream, *of(event));
  }
}

void HostStreams::push_record(Stream& stream, Event& event) {
  event.last = std::make_shared<Record>();
  event.last->stream = &stream;
  event.last->seen = order_.record(stream.component);
  stream.queue.push_back({.record = event.last, .earliest = host_now_});
  after_enqueue();
}

void HostStreams::wait(StreamHandle handle, EventHandle event) {
  Stream& stream = of(handle);
  if (Recording* const recording = recording_of(stream)) {
    recording->items.push_back({.event = of(event), .waits = true});
  } else {
    push_wait(stream, *of(event));
  }
}

void HostStreams::push_wait(Stream& stream, const Event& event) {
  if (event.last == nullptr) return;
  order_.wait(stream.component, event.last->seen);
  stream.queue.push_back({.record = event.last, .waits = true});
  after_enqueue();
}

bool HostStreams::wait_until(EventHandle handle, Time deadline) {
  rethrow_failure();
  forbid_in_capture("a wait of the host");
  const std::shared_ptr<Record> record = of(handle)->last;
  if (record == nullptr) return true;
  if (deadline > Time{}) {
    while (!record->reached) advance_towards(*record);
  } else if (!record->reached) {
    advance_towards(*record);
  }
  rethrow_failure();
  if (!record->reached) return false;
  order_.host_waited(record->seen);
  host_now_ = std::max(host_now_, record->at);
  return true;
}

Nanoseconds HostStreams::elapsed(EventHandle from, EventHandle to) {
  rethrow_failure();
  for (const EventHandle event : {from, to}) {
    if (of(event)->last == nullptr || !of(event)->last->reached) {
      throw std::logic_error(
          "cannot tell the time between two events of which one was not recorded, or nobody waited "
          "for it or for a later one of its stream; wait first");
    }
  }
  return of(to)->last->at - of(from)->last->at;
}

void HostStreams::after_enqueue() {
  if (timing_ == Timing::at_once) run_all();
  if (timing_ == Timing::shuffled) {
    for (std::uint64_t count = random_.below(3); count > 0; --count) advance_any();
  }
}

void HostStreams::run_all() noexcept {
  // Waits refer to records that were enqueued before them, so streams cannot wait in a cycle.
  for (const std::unique_ptr<Stream>& stream : streams_) {
    while (!stream->queue.empty()) advance(*stream);
  }
}

void HostStreams::advance(Stream& stream) {
  Stream* next = &stream;
  while (const Record* const record = next->blocked_by()) next = record->stream;
  run_head(*next);
}

void HostStreams::advance_towards(const Record& record) {
  if (timing_ == Timing::shuffled) {
    advance_any();
  } else {
    advance(*record.stream);
  }
}

void HostStreams::advance_any() {
  std::vector<Stream*> ready;
  for (const std::unique_ptr<Stream>& stream : streams_) {
    if (!stream->queue.empty() && stream->blocked_by() == nullptr) ready.push_back(stream.get());
  }
  if (!ready.empty()) run_head(*ready[random_.below(ready.size())]);
}

void HostStreams::run_head(Stream& stream) {
  const Item item = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.now = std::max(stream.now, item.earliest);
  if (item.operation != nullptr) {
    run(stream, item);
  } else if (item.waits) {
    stream.now = std::max(stream.now, item.record->at);
  } else {
    item.record->reached = true;
    item.record->at = stream.now;
  }
}

void HostStreams::run(Stream& stream, const Item& item) {
  if (failure_ != nullptr) return;
  try {
    const Accesses accesses = item.operation->accesses();
    order_.access(item.moment, item.operation->name, accesses);
    memory_.check(item.operation->name, accesses, item.operation->pageable);
    item.operation->run();
    stream.now += item.operation->cost ? item.operation->cost() : cost_(accesses.bytes());
  } catch (...) {
    fail(std::current_exception());
  }
}

void HostStreams::fail(std::exception_ptr failure) noexcept {
  if (failure_ == nullptr) failure_ = std::move(failure);
}

void HostStreams::rethrow_failure() const {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

// ---- recordings ---------------------------------------------------------------

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
  host_now_ += enqueueing_;
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
