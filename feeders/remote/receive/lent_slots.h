// SPDX-License-Identifier: Apache-2.0
// News of the slots that a feeder lent to the readers of its ring: which of them came back, in a
// form that can be waited for together with sockets; and what keeps lent memory mapped meanwhile,
// also when the feeder ends first.
//
// Thread-safety: `returned` and `wake` from any thread, all else from the feeder's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/lender.h"
#include "dataflow/shared_memory/descriptor.h"

namespace penstock {

class LentSlots final : public Lender {
 public:
  /// Of a ring of `slots`; the clock outlives this. Throws ConfigError where the process is out of
  /// descriptors.
  LentSlots(std::size_t slots, Clock& clock);

  /// Readable when a slot came back, or after wake, until the next collect.
  int fd() const noexcept { return bell_.get(); }
  void wake() noexcept;
  void returned(std::int32_t slot, const Event* read) noexcept override;

  /// Holds `memory` while what it lends is in the slot: until it is collected, or until this ends.
  void keep(std::int32_t slot, std::shared_ptr<const void> memory);

  struct News {
    bool any = false;      ///< slots came back since the last time
    bool pending = false;  ///< some of which a device still reads: nobody says when it is done
  };
  /// Calls `is_back` for each slot that came back and that no device reads any more. While the ring
  /// lives; throws what waiting for its events does.
  News collect(const std::function<void(std::int32_t)>& is_back);
  /// Blocks until the descriptor is readable or `limit` has passed.
  void wait(Nanoseconds limit) const;

 private:
  struct Returned {
    std::int32_t slot = 0;
    const Event* read = nullptr;
  };
  Clock& clock_;
  const Descriptor bell_;  // an eventfd
  std::vector<std::shared_ptr<const void>> kept_;
  std::vector<Returned> pending_;

  std::mutex mutex_;
  // Below under mutex_.
  std::vector<Returned> returned_;
  bool rung_ = false;
};

}  // namespace penstock
