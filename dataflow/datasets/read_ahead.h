// SPDX-License-Identifier: Apache-2.0
// Samples read before they are asked for, so that slow storage always has many requests in hand:
//
//   inner source -> (readers, each with one sample at a time) -> a ring of samples -> next()
//
// Samples keep their order. What is read ahead is bounded in samples and in bytes, but for one
// sample a reader. Thread-safety: as Source's; the readers are threads of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dataflow/source_over.h"

namespace penstock {

class ReadAhead final : public SourceOver {
 public:
  struct Plan {
    std::size_t samples = 64;  ///< in hand at most; above 0
    std::uint64_t bytes = std::uint64_t{64} << 20;
    std::int32_t readers = 8;  ///< threads, above 0
  };
  ReadAhead(std::unique_ptr<Source> inner, const Plan& plan);
  ~ReadAhead() override;

  /// Waits for the sample to be read. Its bytes are there, or lent and in memory.
  bool next(Sample& sample) override;

 private:
  struct Slot {
    Sample sample;
    std::exception_ptr failure;
    std::uint64_t bytes = 0;         // counted in bytes_
    bool read = false, end = false;  // end: of the data
  };

  void read(const std::stop_token& stop) noexcept;
  bool has_room() const noexcept;

  const Plan plan_;
  std::mutex choosing_;  // the inner source's turn; taken before mutex_
  std::mutex mutex_;
  std::condition_variable_any room_, filled_;
  // All below under mutex_.
  std::vector<Slot> slots_;  // a ring
  std::uint64_t given_ = 0,
                taken_ = 0;            // slots that next() has emptied, and that readers have taken
  std::uint64_t bytes_ = 0;            // of samples that are read
  bool ended_ = false;                 // no reader takes another slot
  std::vector<std::jthread> readers_;  // last: they end first
};

}  // namespace penstock
