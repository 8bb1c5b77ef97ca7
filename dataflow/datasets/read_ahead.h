// SPDX-License-Identifier: Apache-2.0
// Reads samples before they are needed, so that slow storage always has many requests in flight:
//
//   inner source -> (readers, each with one sample at a time) -> a ring of samples -> next()
//
// Samples keep their order. Read-ahead is bounded in samples and in bytes; the bytes may exceed
// their limit by one sample per reader. Thread-safety: as Source's; the readers are its own
// threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dataflow/datasets/source_over.h"

namespace penstock::datasets {

class ReadAhead final : public SourceOver {
 public:
  struct Plan {
    std::size_t samples = 64;  ///< limit on samples read ahead; above 0
    std::uint64_t bytes = std::uint64_t{64} << 20;
    std::int32_t readers = 8;  ///< threads, above 0
  };
  ReadAhead(std::unique_ptr<Source> inner, const Plan& plan);
  ~ReadAhead() override;

  /// Blocks until the sample is read. Its bytes are in it, or are lent and in memory.
  bool next(Sample& sample) override;

 private:
  struct Slot {
    Sample sample;
    std::exception_ptr failure;
    std::uint64_t bytes = 0;         // counted in bytes_
    bool read = false, end = false;  // end: end of data
  };

  void read(const std::stop_token& stop) noexcept;
  bool has_room() const noexcept;

  const Plan plan_;
  std::mutex choosing_;  // held to call the inner source; taken before mutex_
  std::mutex mutex_;
  std::condition_variable_any room_, filled_;
  // mutex_ protects everything below.
  std::vector<Slot> slots_;  // a ring
  std::uint64_t given_ = 0,
                taken_ = 0;            // slots that next() has emptied, and that readers have taken
  std::uint64_t bytes_ = 0;            // of samples that are read
  bool ended_ = false;                 // no reader takes another slot
  std::vector<std::jthread> readers_;  // last, so that the threads end first
};

}  // namespace penstock::datasets
