// SPDX-License-Identifier: Apache-2.0
// The gradient exchange of one rank, overlapped with backward. It sums buckets of gradients over
// all ranks while the device computes the gradients of earlier layers.
//
//   backward:            forward | backward ...................... | finish() | update
//   gradients complete:              bucket 0    bucket 1    bucket 2
//   exchange:                        |== 0 ==|   |==== 1 ====|==== 2 ====|
//                                                                  ^^^^^^^^ exposed
//
// Buckets are exchanged in the plan's order, each once it and all before it are complete. Every
// rank has the same plan, so every rank calls its collective in the same order, even if gradients
// complete in different orders. Buckets do not change the elements of a sum or the order of ranks,
// so a collective that adds in rank order gives the same bits with and without buckets.
//
// Thread-safety: the replica's thread calls start, ready and finish; any thread may call times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "trainer/backend.h"
#include "trainer/buckets.h"
#include "trainer/collective.h"

namespace penstock {

/// The times of one bucket, summed over steps.
struct BucketTimes {
  std::size_t bytes = 0;  ///< size of the bucket
  /// From the moment when the bucket is complete to the end of backward. On streams, from the
  /// moment when it is complete and the previous bucket is exchanged.
  Nanoseconds lead{};
  Nanoseconds busy{};  ///< in the collective
};

/// The times of one rank's exchange, summed over steps.
struct ExchangeTimes {
  std::int64_t steps = 0;
  Nanoseconds busy{};     ///< in the collective: moving, adding, and waiting for other ranks
  Nanoseconds exposed{};  ///< from the end of backward to the end of the exchange
  std::vector<BucketTimes> buckets{};  ///< in the order of their exchange

  /// Both sides have the same buckets, or one has none.
  ExchangeTimes& operator+=(const ExchangeTimes& other);
  ExchangeTimes& operator-=(const ExchangeTimes& other);
};

/// The least exposed time of an exchange, if each bucket starts as soon as it is complete and the
/// previous one is done: c_j = max(c_(j-1), t_j) + T_j, exposed = max(0, c_last - T_b). The times
/// are of one step, or sums over similar steps.
Nanoseconds least_exposed(std::span<const BucketTimes> buckets);

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  /// Called once, before the first step. From then on only the exchange may call the collective.
  virtual void start() = 0;

  /// Called before each step, or before its recording. Returns the callback that backward calls for
  /// each gradient that is complete on `stream`, in any order. Borrows both; does not block.
  virtual GradientReady ready(Stream& stream) = 0;

  /// Called once in each step, after its backward pass and outside of its recording. Exchanges the
  /// remaining buckets and makes `stream` wait for all of them. Throws the collective's exception;
  /// the exchange is unusable after that.
  virtual void finish(Stream& stream) = 0;

  /// The time that a step waited for its exchange after backward. `step` counts calls of finish()
  /// from 0 and is one of the last `in_flight`; 0 for a step that did not call it. Called by the
  /// replica's thread, once the device has done the step.
  virtual Nanoseconds exposed(std::size_t step) const = 0;

  /// The times of all finished steps.
  virtual ExchangeTimes times() const = 0;
  virtual const BucketPlan& plan() const noexcept = 0;
};

/// Exchanges from a communication thread, which calls the collective while the replica's thread
/// continues to compute. For devices whose work is done when Executable::run returns and whose
/// memory is host memory. It does not work for devices with a queue: a gradient that is only
/// enqueued cannot be exchanged from a thread.
class ThreadExchange final : public GradientExchange {
 public:
  /// Plans the buckets. Borrows the collective, the set, whose arena must not move, the device and
  /// the clock. The host is at most `in_flight` steps ahead of what it asks exposed() for.
  ThreadExchange(Collective& collective, const ParameterSet& set, Device& device, Clock& clock,
                 const BucketLimits& limits, std::size_t in_flight = 1);
  /// Waits for the communication thread, which is idle between steps. If a step is in progress, the
  /// collective must end by itself, as it does when the run is being stopped.
  ~ThreadExchange() override;

  /// Starts the communication thread.
  void start() override;
  GradientReady ready(Stream& stream) override;
  /// Waits until all buckets are exchanged.
  void finish(Stream& stream) override;
  Nanoseconds exposed(std::size_t step) const override;
  ExchangeTimes times() const override;
  const BucketPlan& plan() const noexcept override { return plan_; }

 private:
  void hand_over(std::size_t end, Stream& stream);
  void run(const std::stop_token& stop);
  bool await_bucket(const std::stop_token& stop);
  void exchange(std::size_t bucket);

  Collective& collective_;
  Clock& clock_;
  const BucketPlan plan_;
  const std::unique_ptr<Stream> stream_;                // of the communication thread
  const std::vector<std::unique_ptr<Event>> complete_;  // by bucket, on the replica's stream
  const std::unique_ptr<Event> backward_done_, exchanged_;

  // Used by the replica's thread, in the current step.
  BucketProgress progress_;
  std::vector<Time> completed_;       // by bucket that was handed over
  std::size_t handed_ = 0;            // buckets
  std::vector<Nanoseconds> exposed_;  // a ring over steps
  std::size_t finished_ = 0;          // steps

  mutable std::mutex mutex_;
  Gate gate_;
  // All below are protected by mutex_.
  std::size_t given_ = 0, done_ = 0;  // buckets of the current step
  std::exception_ptr failure_;
  ExchangeTimes times_;            // of finished steps
  std::vector<Nanoseconds> busy_;  // by bucket, of the current step

  std::jthread thread_;
};

/// Exchanges on a second stream, for devices that run behind the host. A recorded step records an
/// event for each complete bucket, and the second stream waits for these events in each launch. The
/// replica's thread calls the collective in finish().
class StreamExchange final : public GradientExchange {
 public:
  /// Parameters are the same as for ThreadExchange. finish() is called for at most `in_flight`
  /// steps before the device has done the first of them.
  StreamExchange(Collective& collective, const ParameterSet& set, Device& device, Clock& clock,
                 const BucketLimits& limits, std::size_t in_flight);

  void start() override {}
  GradientReady ready(Stream& stream) override;
  /// Only enqueues, if the collective only enqueues.
  void finish(Stream& stream) override;
  Nanoseconds exposed(std::size_t step) const override;
  /// Excludes steps that the device has not finished.
  ExchangeTimes times() const override;
  const BucketPlan& plan() const noexcept override { return plan_; }

 private:
  /// Events of one step, read once the device has passed them.
  struct Step {
    std::unique_ptr<Event> backward_done;
    std::vector<std::unique_ptr<Event>> begun, done;  // by bucket
    bool pending = false;                             // under the mutex
  };
  void add(const Step& step) const;
  static Nanoseconds exposed_in(const Step& step);

  Collective& collective_;
  Clock& clock_;
  const BucketPlan plan_;
  const std::unique_ptr<Stream> stream_;
  const std::vector<std::unique_ptr<Event>> complete_;  // by bucket, on the replica's stream
  BucketProgress progress_;
  std::size_t reported_ = 0;  // buckets, in the current step or recording
  std::size_t finished_ = 0;  // steps

  mutable std::mutex mutex_;
  mutable std::vector<Step> steps_;  // a ring
  mutable ExchangeTimes times_;      // under the mutex
};

}  // namespace penstock
