// SPDX-License-Identifier: Apache-2.0
// Where ranks show each other their models without meeting: each publishes snapshots of its weights
// whenever it likes, and every other reads the newest one whenever it likes. Neither knows how the
// bytes get there: in one process through its memory, between processes through whatever carries
// one-sided reads.
//
// Thread-safety: publish from the publishing rank's thread, read from one thread of the reading
// rank's at a time; all ranks at once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "trainer/backend.h"

namespace penstock {

class ModelStore {
 public:
  virtual ~ModelStore() = default;
  /// Shows `weights`, as they are behind what the stream has been given, as `version` of the rank's
  /// model, above its earlier ones. Enqueues a copy; blocks no longer than others need for theirs.
  /// Tensors are f32 and of equal counts in all calls. Throws Error when the run is being stopped.
  virtual void publish(std::int32_t rank, std::int64_t version, const Tensor& weights,
                       Stream& stream) = 0;
  /// Enqueues a copy of the owner's newest complete model into `into`, never a mixture of two, and
  /// returns its version; nothing where the owner has published none. The owner does not notice.
  virtual std::optional<std::int64_t> read(std::int32_t reader, std::int32_t owner,
                                           const Tensor& into, Stream& stream) = 0;
};

/// Of ranks that are threads of one process: kSnapshots models of each rank in pinned memory, made
/// when it first publishes. A publisher waits only while readers copy out of all but the newest.
class ThreadsModelStore final : public ModelStore {
 public:
  static constexpr std::size_t kSnapshots = 3;

  /// One device per rank; they and the clock outlive the store. A stop request lets a publisher
  /// that waits leave with an Error.
  ThreadsModelStore(std::span<Device* const> devices, Clock& clock, std::stop_token stop);
  void publish(std::int32_t rank, std::int64_t version, const Tensor& weights,
               Stream& stream) override;
  std::optional<std::int64_t> read(std::int32_t reader, std::int32_t owner, const Tensor& into,
                                   Stream& stream) override;

 private:
  /// Belongs to its publisher while it is being written, and to its readers while there are any.
  struct Snapshot {
    static constexpr std::int64_t kNone = -1;
    Buffer buffer;
    std::unique_ptr<Event> written;
    std::vector<std::unique_ptr<Event>> read;  // by reader
    // Under the rank's mutex.
    std::int64_t version = kNone;  // kNone: nothing to be read
    std::int32_t readers = 0;
  };
  struct Rank {
    std::array<Snapshot, kSnapshots> snapshots;
    std::mutex mutex;
    Gate gate;  // a reader has left
  };
  class Reading;

  Snapshot& take_for_writing(Rank& rank);
  Snapshot* take_for_reading(Rank& rank) const;

  const std::vector<Device*> devices_;
  Clock& clock_;
  const std::stop_token stop_;
  std::vector<Rank> ranks_;
};

}  // namespace penstock
