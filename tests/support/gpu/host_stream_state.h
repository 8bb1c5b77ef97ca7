// SPDX-License-Identifier: Apache-2.0
// What HostStreams keeps; for its own files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/gpu/host_streams.h"

namespace penstock::gpu {

/// What is enqueued between begin_capture and end_capture. Lane 0 is the stream that it began on,
/// the others are those that joined.
struct HostStreams::Recording {
  struct Item {
    std::size_t lane = 0;
    Operation operation{};   ///< null: a record, or a wait for one
    std::size_t record = 0;  ///< its number
    bool waits = false;
  };
  std::thread::id thread = std::this_thread::get_id();
  std::vector<Stream*> lanes;
  std::vector<Item> items;
  std::size_t records = 0;
  /// For each lane, how many items of each lane come before what is enqueued on it next.
  std::vector<VectorClock> seen;

  void add(std::size_t lane, Item item) {
    item.lane = lane;
    items.push_back(std::move(item));
    ++seen[lane][lane];
  }
  void add_lane(Stream& stream) {
    lanes.push_back(&stream);
    seen.emplace_back();
    for (VectorClock& clock : seen) clock.resize(lanes.size());
  }
  void join(std::size_t lane, const VectorClock& clock) {
    for (std::size_t i = 0; i < clock.size(); ++i) {
      seen[lane][i] = std::max(seen[lane][i], clock[i]);
    }
  }
  bool joined() const {
    for (std::size_t i = 1; i < lanes.size(); ++i) {
      if (seen[0][i] < seen[i][i]) return false;
    }
    return true;
  }
};

/// One moment at which an event was recorded.
struct HostStreams::Record {
  Stream* stream = nullptr;  ///< while it is not reached
  bool reached = false;
  Nanoseconds at{0};
  VectorClock seen;
  std::shared_ptr<Recording> recording;  ///< null: it was not recorded in one
  std::size_t number = 0;                ///< in the recording
};

struct HostStreams::Item {
  Operation operation{};  ///< null: a record, or a wait for one
  std::shared_ptr<Record> record{};
  bool waits = false;
  Moment moment{};
  Nanoseconds earliest{0};
};

struct HostStreams::Stream {
  std::size_t component = 0;
  std::deque<Item> queue;
  Nanoseconds now{0};
  std::shared_ptr<Recording> recording;  ///< null: what is enqueued runs
  std::size_t lane = 0;

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
  std::vector<Stream*> lanes;  ///< of its own; the first is null, for the stream of the launch
};

}  // namespace penstock::gpu
