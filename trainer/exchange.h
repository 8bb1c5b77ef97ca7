// SPDX-License-Identifier: Apache-2.0
// The gradient exchange of one rank that overlaps with backward: buckets of gradients are summed
// over all ranks while the device computes earlier layers' gradients.
//
//   backward:            forward | backward ...................... | finish() | update
//   gradients complete:              bucket 0    bucket 1    bucket 2
//   exchange:                        |== 0 ==|   |==== 1 ====|==== 2 ====|
//                                                                  ^^^^^^^^ exposed
//
// Buckets go in the plan's order, each once it and all before it are complete: since every rank has
// the same plan, every rank calls its collective in the same order, whatever order gradients come
// in. Sums are of the same elements in the same order of ranks as without buckets, so that a
// collective which adds in rank order gives the same bits.
//
// Thread-safety: start, ready and finish from the replica's thread; times from any.
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

/// Of one bucket, summed over steps.
struct BucketTimes {
  std::size_t bytes = 0;  ///< of the bucket
  /// From the moment when it was complete to the end of backward; on streams, when it and the
  /// exchange of the one before were.
  Nanoseconds lead{};
  Nanoseconds busy{};  ///< in the collective
};

/// What a rank's exchange took, summed over steps.
struct ExchangeTimes {
  std::int64_t steps = 0;
  Nanoseconds busy{};     ///< in the collective: moving, adding, and waiting for other ranks in it
  Nanoseconds exposed{};  ///< from the end of backward to the end of the exchange
  std::vector<BucketTimes> buckets{};  ///< in the order of their exchange

  /// Of exchanges with the same buckets, or of none.
  ExchangeTimes& operator+=(const ExchangeTimes& other);
  ExchangeTimes& operator-=(const ExchangeTimes& other);
};

/// What shows of an exchange whose buckets begin as soon as they are complete and the one before is
/// done: c_j = max(c_(j-1), t_j) + T_j, exposed = max(0, c_last - T_b). Of one step, or of sums
/// over steps that resemble each other.
Nanoseconds least_exposed(std::span<const BucketTimes> buckets);

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  /// Called once, before the first step; from here on nobody else may call the collective.
  virtual void start() = 0;

  /// Called in front of each step, or of its recording: what its backward tells of each gradient
  /// that is complete on `stream`, in any order. Borrows both; does not block.
  virtual GradientReady ready(Stream& stream) = 0;

  /// Called once in each step, behind its backward pass and outside of its recording: exchanges
  /// what is not exchanged yet, and lets `stream` go on behind that. Throws what the collective
  /// threw, after which the exchange is of no more use.
  virtual void finish(Stream& stream) = 0;

  /// Of all steps that were finished.
  virtual ExchangeTimes times() const = 0;
  virtual const BucketPlan& plan() const noexcept = 0;
};

/// By a communication thread, which calls the collective while the replica's own thread goes on
/// computing. For devices whose work is done when Executable::run returns and whose memory is the
/// host's: what a device merely has in its queue when a gradient is reported cannot be exchanged
/// from a thread.
class ThreadExchange final : public GradientExchange {
 public:
  /// Plans the buckets. All but the limits are borrowed; the arena of `set` stays where it is.
  ThreadExchange(Collective& collective, const ParameterSet& set, Device& device, Clock& clock,
                 const BucketLimits& limits);
  /// Waits for the communication thread, which is idle between steps. Within one, the collective
  /// has to end by itself, as it does where the run is being stopped.
  ~ThreadExchange() override;

  /// Starts the communication thread.
  void start() override;
  GradientReady ready(Stream& stream) override;
  /// Waits until all buckets are exchanged.
  void finish(Stream& stream) override;
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
  const std::unique_ptr<Stream> stream_;                // the communication thread's
  const std::vector<std::unique_ptr<Event>> complete_;  // by bucket, on the replica's stream
  const std::unique_ptr<Event> backward_done_, exchanged_;

  // Of the replica's thread, in the step under way.
  BucketProgress progress_;
  std::vector<Time> completed_;  // by bucket that was handed over
  std::size_t handed_ = 0;       // buckets

  mutable std::mutex mutex_;
  Gate gate_;
  // All below under mutex_.
  std::size_t given_ = 0, done_ = 0;  // buckets of the step under way
  std::exception_ptr failure_;
  ExchangeTimes times_;            // of finished steps
  std::vector<Nanoseconds> busy_;  // by bucket, of the step under way

  std::jthread thread_;
};

/// On a stream of its own, for devices that run behind the host: a recorded step records an event
/// for each bucket that is complete, for which this stream waits in each launch. The replica's
/// thread calls the collective in finish().
class StreamExchange final : public GradientExchange {
 public:
  /// As ThreadExchange. At most `in_flight` steps are finished here before the device has done the
  /// first of them.
  StreamExchange(Collective& collective, const ParameterSet& set, Device& device, Clock& clock,
                 const BucketLimits& limits, std::size_t in_flight);

  void start() override {}
  GradientReady ready(Stream& stream) override;
  /// Only enqueues, as far as the collective does.
  void finish(Stream& stream) override;
  /// Without steps that the device has not done.
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

  Collective& collective_;
  Clock& clock_;
  const BucketPlan plan_;
  const std::unique_ptr<Stream> stream_;
  const std::vector<std::unique_ptr<Event>> complete_;  // by bucket, on the replica's stream
  BucketProgress progress_;
  std::size_t reported_ = 0;  // buckets, in the step or recording under way
  std::size_t next_ = 0;      // of steps_

  mutable std::mutex mutex_;
  mutable std::vector<Step> steps_;  // a ring
  mutable ExchangeTimes times_;      // under the mutex
};

}  // namespace penstock
