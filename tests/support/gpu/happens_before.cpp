// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/happens_before.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace penstock::gpu {
namespace {

void join(VectorClock& clock, const VectorClock& other) {
  clock.resize(std::max(clock.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

/// std::less also compares pointers of different blocks.
bool before(const std::byte* a, const std::byte* b) { return std::less<>()(a, b); }
const std::byte* end_of(const MemoryRange& range) { return range.begin + range.bytes; }
bool overlap(const MemoryRange& a, const MemoryRange& b) {
  return before(a.begin, end_of(b)) && before(b.begin, end_of(a));
}
bool covers(const MemoryRange& outer, const MemoryRange& inner) {
  return !before(inner.begin, outer.begin) && !before(end_of(outer), end_of(inner));
}

}  // namespace

std::size_t HappensBefore::add_stream() {
  clocks_.emplace_back(clocks_.size() + 1);
  return clocks_.size() - 1;
}

Moment HappensBefore::enqueue(std::size_t stream) {
  join(clocks_[stream], clocks_[kHost]);
  ++clocks_[stream][stream];
  return {stream, clocks_[stream]};
}

VectorClock HappensBefore::record(std::size_t stream) {
  join(clocks_[stream], clocks_[kHost]);
  return clocks_[stream];
}

void HappensBefore::wait(std::size_t stream, const VectorClock& recorded) {
  join(clocks_[stream], recorded);
}

void HappensBefore::host_waited(const VectorClock& recorded) { join(clocks_[kHost], recorded); }

Moment HappensBefore::host_moment() {
  ++clocks_[kHost][kHost];
  return {kHost, clocks_[kHost]};
}

void HappensBefore::add_block(const std::byte* begin, std::size_t bytes, std::string name) {
  const MemoryRange block{begin, bytes};
  std::erase_if(live_, [&](const Live& live) { return overlap(live.range, block); });
  std::erase_if(blocks_, [&](const auto& known) {
    return overlap({known.first, known.second.first}, block);
  });
  blocks_.emplace(begin, std::pair(bytes, std::move(name)));
}

void HappensBefore::access(const Moment& moment, std::string_view operation,
                           const Accesses& accesses) {
  operations_.push_back(moment.component == kHost
                            ? fmt::format("{} by the host", operation)
                            : fmt::format("{} on stream {}", operation, moment.component));
  Live live{.operation = operations_.size() - 1,
            .component = moment.component,
            .time = moment.seen[moment.component]};
  for (const MemoryRange& range : accesses.reads) {
    live.range = range;
    access(moment, live);
  }
  live.writes = true;
  for (const MemoryRange& range : accesses.writes) {
    live.range = range;
    access(moment, live);
  }
}

void HappensBefore::access(const Moment& moment, const Live& later) {
  std::erase_if(live_, [&](const Live& earlier) {
    if (!overlap(earlier.range, later.range)) return false;
    const bool ordered =
        earlier.component < moment.seen.size() && earlier.time <= moment.seen[earlier.component];
    if (!ordered && (earlier.writes || later.writes)) report(earlier, later);
    // Every later access that conflicts with the earlier one also conflicts with this one.
    return ordered && covers(later.range, earlier.range) && (later.writes || !earlier.writes);
  });
  live_.push_back(later);
}

void HappensBefore::report(const Live& earlier, const Live& later) {
  if (!reported_.emplace(earlier.operation, later.operation).second) return;
  races_.push_back(fmt::format(
      "{}, and {}, but nothing orders them; let one wait for an event that is recorded after the "
      "other",
      describe(earlier), describe(later)));
}

std::string HappensBefore::describe(const Live& live) const {
  const std::string what =
      fmt::format("operation {} ({}) {}", live.operation, operations_[live.operation],
                  live.writes ? "writes" : "reads");
  const auto after = blocks_.upper_bound(live.range.begin);
  if (after != blocks_.begin()) {
    const auto& [begin, block] = *std::prev(after);
    const std::ptrdiff_t first = live.range.begin - begin;
    if (static_cast<std::size_t>(first) < block.first) {
      return fmt::format("{} bytes [{}, {}) of {}", what, first,
                         static_cast<std::size_t>(first) + live.range.bytes, block.second);
    }
  }
  return fmt::format("{} {} bytes at {}", what, live.range.bytes,
                     static_cast<const void*>(live.range.begin));
}

}  // namespace penstock::gpu
