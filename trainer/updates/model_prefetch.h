// SPDX-License-Identifier: Apache-2.0
// Reads another rank's model on a thread of its own, while the rank computes.
//
// Thread-safety: begin and finish, in turn, from the rank's thread.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "trainer/update_strategy.h"

namespace penstock {

class ModelPrefetch {
 public:
  /// Needs the context's device, models and clock, which it borrows.
  explicit ModelPrefetch(const UpdateContext& context);
  /// Waits for a read under way, which ends by itself where the run is being stopped.
  ~ModelPrefetch();

  /// Begins to copy the owner's newest model into `into`, once what `stream` has been given is
  /// done with it.
  void begin(std::int32_t owner, const Tensor& into, Stream& stream);
  /// Blocks until the copy is enqueued, lets `stream` go on behind it, and returns the version;
  /// nothing where the owner has published none. Rethrows what reading threw.
  std::optional<std::int64_t> finish(Stream& stream);

 private:
  void run(const std::stop_token& stop);

  const std::int32_t reader_;
  ModelStore& models_;
  Clock& clock_;
  const std::unique_ptr<Stream> stream_;      // the thread's
  const std::unique_ptr<Event> free_, done_;  // on the rank's stream; on the thread's

  std::mutex mutex_;
  Gate gate_;
  // All below under mutex_; while a read is wanted, only the thread changes them.
  bool wanted_ = false;  // a read was begun and has not ended
  std::int32_t owner_ = 0;
  Tensor into_;
  std::optional<std::int64_t> version_;
  std::exception_ptr failure_;

  std::jthread thread_;  // last: it ends first
};

}  // namespace penstock
