// SPDX-License-Identifier: Apache-2.0
// Tracks the slots whose batches are in use where they lie: slots of a ring that a feeder lent to
// its readers, or messages whose images are being decoded. It tells which ones came back, with a
// file descriptor to wait for together with sockets. It also keeps the lent memory mapped, even if
// the feeder ends first.
//
// Thread-safety: `returned` and `wake` from any thread, all else from the feeder's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock::remote {

class LentSlots final : public ForeignPixels {
 public:
  /// The clock outlives this object. Throws ConfigError if the process has no free file descriptor.
  explicit LentSlots(Clock& clock) : clock_(clock) {}

  /// Readable after a slot came back or after wake(), until the next collect().
  int fd() const noexcept { return news_.get(); }
  void wake() noexcept;
  void returned(std::int32_t slot, const Event* read) noexcept override;

  /// Call before the slot is lent: makes room for its return, and keeps `memory` until the slot is
  /// collected, or this object ends.
  void keep(std::int32_t slot, std::shared_ptr<const void> memory);

  struct News {
    bool any = false;      ///< slots came back since the last call
    bool pending = false;  ///< a device still reads some of them; poll until it is done
  };
  /// Calls `is_back` for each slot that came back and that no device reads any more. Call while the
  /// ring lives. Throws what a wait for its events throws.
  News collect(const std::function<void(std::int32_t)>& is_back);
  /// Blocks until fd() is readable or `limit` has passed.
  void wait(Nanoseconds limit) const;

 private:
  struct Returned {
    std::int32_t slot = 0;
    const Event* read = nullptr;
  };
  Clock& clock_;
  const EventFd news_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::vector<Returned> pending_;

  std::mutex mutex_;
  // All below under mutex_.
  std::vector<Returned> returned_;
  bool signalled_ = false;
};

}  // namespace penstock::remote
