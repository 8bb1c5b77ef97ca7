// SPDX-License-Identifier: Apache-2.0
// Proves that conflicting accesses of the host and of streams are ordered by the streams and events
// between them, whatever order they ran in this time. Vector clocks (Fidge and Mattern, 1988), with
// the accesses of each range kept until later ones that they happened before stand for them, as
// FastTrack does (Flanagan and Freund, PLDI 2009).
//
// All threads of the host count as one: that they are ordered among themselves is ThreadSanitizer's
// to check. Thread-safety: none, guard it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/gpu/accesses.h"

namespace penstock::gpu {

/// By component (the host, then streams), how many of its moments have happened. Shorter ones are
/// continued with 0.
using VectorClock = std::vector<std::uint64_t>;

/// A moment of a component, and all that happened before it.
struct Moment {
  std::size_t component = 0;
  VectorClock seen;
};

class HappensBefore {
 public:
  static constexpr std::size_t kHost = 0;

  /// The component that stands for a new stream.
  std::size_t add_stream();
  /// Of work that the host enqueues now: what it did so far, and the stream's earlier work, happen
  /// before.
  Moment enqueue(std::size_t stream);
  /// What has happened once an event that is recorded now is reached.
  VectorClock record(std::size_t stream);
  void wait(std::size_t stream, const VectorClock& recorded);
  void host_waited(const VectorClock& recorded);
  Moment host_moment();

  /// Names memory for messages, and forgets what was accessed there before.
  void add_block(const std::byte* begin, std::size_t bytes, std::string name);
  /// In an order in which accesses might have happened: that in which the operations ran.
  void access(const Moment& moment, std::string_view operation, const Accesses& accesses);

  /// One sentence for each pair of operations with conflicting accesses of which neither happens
  /// before the other. Of pairs that differ only in accesses of which one happens before the other,
  /// as those of a loop, one may stand for all.
  const std::vector<std::string>& races() const noexcept { return races_; }

 private:
  struct Live {
    MemoryRange range{};
    bool writes = false;
    std::size_t operation = 0, component = 0;
    std::uint64_t time = 0;
  };
  void access(const Moment& moment, const Live& live);
  void report(const Live& earlier, const Live& later);
  std::string describe(const Live& live) const;

  std::vector<VectorClock> clocks_{VectorClock(1)};
  std::vector<std::string> operations_;  ///< what each was called
  std::vector<Live> live_;
  std::vector<std::pair<std::size_t, std::size_t>> reported_;  ///< sorted pairs of operations
  std::vector<std::string> races_;
  std::map<const std::byte*, std::pair<std::size_t, std::string>> blocks_;
};

}  // namespace penstock::gpu
