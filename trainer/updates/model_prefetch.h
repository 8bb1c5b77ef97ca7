// SPDX-License-Identifier: Apache-2.0
// Reads another rank's model on a separate thread while the rank computes.
//
// Thread-safety: the rank's thread calls begin and finish, alternately.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "trainer/update_strategy.h"

namespace penstock::updates {

class ModelPrefetch {
 public:
  /// Needs the context's device.
  ModelPrefetch(const UpdateContext& context, const PeerModels& models);
  /// Waits for a read in progress, which ends by itself if the run is being stopped.
  ~ModelPrefetch();

  /// Begins to copy the owner's newest model into `into`, after the work that is already enqueued
  /// on `stream`.
  void begin(std::int32_t owner, const Tensor& into, Stream& stream);
  /// Blocks until the copy is enqueued, makes `stream` wait for it, and returns the version.
  /// Nothing: the owner has not published. Rethrows the exception of the read.
  std::optional<std::int64_t> finish(Stream& stream);

 private:
  void run(const std::stop_token& stop);

  const std::int32_t reader_;
  cluster::ModelStore& models_;
  Clock& clock_;
  const std::unique_ptr<Stream> stream_;      // of the thread
  const std::unique_ptr<Event> free_, done_;  // on the rank's stream; on the thread's

  std::mutex mutex_;
  Gate gate_;
  // All below are protected by mutex_. While a read is wanted, only the thread changes them.
  bool wanted_ = false;  // a read has begun and has not ended
  std::int32_t owner_ = 0;
  Tensor into_;
  std::optional<std::int64_t> version_;
  std::exception_ptr failure_;

  std::jthread thread_;  // last: it ends first
};

}  // namespace penstock::updates
