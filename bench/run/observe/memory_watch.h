// SPDX-License-Identifier: Apache-2.0
// How much memory is in use during the window: of this process and of the machine. A
// Sampler looks ten times a second, so measured threads do nothing for it.
//
// Thread-safety: begin, end, forget and uses from one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/record/run_result.h"
#include "dataflow/machine/sampler.h"
#include "dataflow/ring_monitor.h"

namespace penstock {

class MemoryWatch {
 public:
  /// Something whose bytes in use can be asked for; none: unknown now. The function is called from
  /// the sampler's thread, too, and allocates nothing.
  struct Level {
    std::string name;
    std::function<std::optional<std::size_t>()> bytes;
  };

  /// Without levels it has no thread.
  explicit MemoryWatch(std::vector<Level> levels);

  /// Watches from now on, until end(). Both take a sample at once.
  void begin();
  void end();
  /// Forgets what was seen.
  void forget();
  /// What was seen, in `parts` parts, without levels that no sample knew.
  std::vector<MemoryUse> uses(std::size_t parts) const;

 private:
  struct Watched {
    Level level;
    std::optional<std::size_t> bytes{};  ///< of the last sample
    std::optional<std::size_t> peak{};
    LevelHistory history{};  ///< in kUnit
  };
  void sample(Time now);

  mutable std::mutex mutex_;
  // Under mutex_.
  bool watching_ = false;
  Time sampled_{};
  std::vector<Watched> watched_;
  std::optional<Sampler> sampler_;  // last member: its thread ends first
};

/// This process's resident memory, the machine's memory that is not available, and its page cache.
std::vector<MemoryWatch::Level> host_memory_levels();

}  // namespace penstock
