// SPDX-License-Identifier: Apache-2.0
// Verifies that streams and events order all conflicting accesses of the host and of streams,
// whatever order they ran in this time. Uses vector clocks (Fidge and Mattern, 1988). Like
// FastTrack (Flanagan and Freund, PLDI 2009), it keeps an access to a range until a later access
// that it happened before replaces it.
//
// All threads of the host count as one component: ThreadSanitizer checks the order among them.
// Thread-safety: none; guard it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/gpu/accesses.h"

namespace penstock::gpu {

/// For each component (the host, then the streams), the number of its moments that have happened.
/// Missing entries of a shorter clock are 0.
using VectorClock = std::vector<std::uint64_t>;

/// A moment of a component, and everything that happened before it.
struct Moment {
  std::size_t component = 0;
  VectorClock seen;
};

class HappensBefore {
 public:
  static constexpr std::size_t kHost = 0;

  /// Adds a component for a new stream and returns it.
  std::size_t add_stream();
  /// The moment of work that the host enqueues now. The host's actions so far and the stream's
  /// earlier work happen before it.
  Moment enqueue(std::size_t stream);
  /// The clock of an event that is recorded now: everything that has happened when it is reached.
  VectorClock record(std::size_t stream);
  void wait(std::size_t stream, const VectorClock& recorded);
  void host_waited(const VectorClock& recorded);
  Moment host_moment();

  /// Names memory for messages, and forgets earlier accesses to it.
  void add_block(const std::byte* begin, std::size_t bytes, std::string name);
  /// Notes accesses. Call this in a possible order of accesses: the order in which the operations
  /// ran.
  void access(const Moment& moment, std::string_view operation, const Accesses& accesses);

  /// One sentence for each pair of operations with conflicting, unordered accesses. If several
  /// pairs differ only in accesses that are ordered among themselves, as in a loop, one pair may
  /// represent all.
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
  std::vector<std::string> operations_;  ///< names of the operations
  std::vector<Live> live_;
  std::set<std::pair<std::size_t, std::size_t>> reported_;  ///< pairs of operations
  std::vector<std::string> races_;
  std::map<const std::byte*, std::pair<std::size_t, std::string>> blocks_;
};

}  // namespace penstock::gpu
