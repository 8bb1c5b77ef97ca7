// SPDX-License-Identifier: Apache-2.0
// Ranks show each other their models here without meeting. Each rank may publish a snapshot of its
// weights at any time, and every other rank may read the newest one at any time. The transport is
// hidden: memory inside a process, messages between processes.
//
// Thread-safety: all ranks may use it at once. The publishing rank's thread calls publish; one
// thread of the reading rank at a time calls read.
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

namespace penstock::cluster {

class ModelStore {
 public:
  virtual ~ModelStore() = default;
  /// Publishes a copy of `weights`, taken after the work that is already enqueued on the stream, as
  /// `version` of the rank's model. Versions of a rank ascend. Enqueues the copy; blocks only while
  /// readers need the memory. Tensors are f32 and have equal counts in all calls. Throws Error if
  /// the run is being stopped.
  virtual void publish(std::int32_t rank, std::int64_t version, const Tensor& weights,
                       Stream& stream) = 0;
  /// Enqueues a copy of the owner's newest complete model into `into`, never a mixture of two, and
  /// returns its version. Returns nothing if the owner has not published. Does not disturb the
  /// owner.
  virtual std::optional<std::int64_t> read(std::int32_t reader, std::int32_t owner,
                                           const Tensor& into, Stream& stream) = 0;
};

/// For ranks that are threads of one process: kSnapshots models of each rank in pinned memory,
/// allocated at its first publish. A publisher waits only while readers copy from all snapshots
/// except the newest.
class ThreadsModelStore final : public ModelStore {
 public:
  static constexpr std::size_t kSnapshots = 3;

  /// One device per rank; the devices and the clock outlive the store. On a stop request a waiting
  /// publisher leaves with an Error.
  ThreadsModelStore(std::span<Device* const> devices, Clock& clock, std::stop_token stop);
  void publish(std::int32_t rank, std::int64_t version, const Tensor& weights,
               Stream& stream) override;
  std::optional<std::int64_t> read(std::int32_t reader, std::int32_t owner, const Tensor& into,
                                   Stream& stream) override;

 private:
  /// Belongs to its publisher while it is being written, and to its readers while it has any.
  struct Snapshot {
    static constexpr std::int64_t kNone = -1;
    Buffer buffer;
    std::unique_ptr<Event> written;
    std::vector<std::unique_ptr<Event>> read;  // by reader
    // Under the rank's mutex.
    std::int64_t version = kNone;  // kNone: not readable
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

}  // namespace penstock::cluster
