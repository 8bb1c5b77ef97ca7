// SPDX-License-Identifier: Apache-2.0
// The state of HostStreams, for its own source files only.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/gpu/host_streams.h"

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

}  // namespace penstock::gpu
