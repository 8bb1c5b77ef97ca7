// SPDX-License-Identifier: Apache-2.0
// One rank: takes batches from its ring and runs steps on its device, at most a few steps ahead.
//
// The host waits for the device in one place: before it is `in_flight` steps ahead. The work for
// each ring slot is recorded once, as a Program, and launched again each time that slot is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/mark.h"
#include "trainer/backend.h"
#include "trainer/metrics.h"
#include "trainer/update_strategy.h"

namespace penstock {

class Replica {
 public:
  enum class Ending : std::uint8_t { completed, end_of_data, stopped };

  /// Called on the replica's thread after each finished step, inside the window; it must be cheap.
  using OnStep = std::function<void(std::size_t step, const StepTimes&)>;

  /// The components that a rank trains with. All are borrowed for the replica's lifetime.
  struct Parts {
    Executable& executable;
    Optimizer& optimizer;
    UpdateStrategy& update;
    std::function<Hyper(std::int64_t step)> hyper;  ///< for the step with that number, from 0
    /// True: the update is part of the recorded step. False: it is enqueued after each step.
    bool record_update = true;
    /// The exchange that overlaps with backward, for its times; null: there is none.
    const GradientExchange* exchange = nullptr;
    Marks marks{};  ///< "wait for a batch", and "step" for enqueuing the step
    /// Ranks wait for each other in the update, which is not recorded: StepTimes::exchange is the
    /// time from the end of backward to the end of the step.
    bool waits = false;
  };

  /// `input` is a ring in `device`'s memory with one reader. It is borrowed too. In phases other
  /// than train there is no update, and the weights do not change.
  Replica(BatchRing& input, Device& device, Parts parts, Phase phase, Clock& clock);

  /// Gives every rank the weights of rank 0. Called once, on the replica's thread.
  void start() {
    parts_.optimizer.prepare(parts_.executable.parameters());
    parts_.update.start(parts_.executable, *stream_);
  }

  /// Runs `steps` steps and waits until the device has done them. `leg.steps` is sized before the
  /// clock starts and is cut to the finished steps, even if it throws. Steps that a stopped device
  /// does not finish do not count. Throws the feeder's failure, or a DeviceError that names the
  /// failed step by number from 1.
  Ending run(std::size_t steps, Leg& leg, const OnStep& on_step, std::stop_token stop);

  /// The number of steps so far. A resumed run sets it between legs.
  std::int64_t step() const noexcept { return step_; }
  void set_step(std::int64_t step) noexcept { step_ = step; }

 private:
  struct Launched {
    std::unique_ptr<Event> begun, done;
    std::unique_ptr<Event> computed;  // the end of backward; null: not needed
    const Event* written = nullptr;   // event of its batch; null: before it was offered
    Time offered{};
    std::int32_t slot = 0;
  };
  ReadLease next(StepTimes& times, std::stop_token stop);
  /// Adds the step's number to exceptions of a failed device.
  template <typename Call>
  auto in_step(std::int64_t step, const Call& call);
  void take_step(ReadLease lease, Launched& launched, StepTimes& times);
  void launch(const Batch& batch, Launched& launched);
  Program& program_for(const Batch& batch);
  void update(std::size_t slot);
  bool finish(std::size_t step, Leg& leg, const OnStep& on_step);
  Launched& launched_at(std::size_t step) { return launched_[step % launched_.size()]; }

  BatchRing& input_;
  Parts parts_;
  const Phase phase_;
  Clock& clock_;
  std::int64_t step_ = 0;
  std::size_t finished_ = 0;  // by this replica
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> origin_;
  std::vector<Launched> launched_;  // a ring over steps in flight, plus one
  /// A step on one slot with that many images, which a program records.
  struct Recorded {
    std::int32_t images = 0;
    std::unique_ptr<Program> program;
  };
  std::vector<std::vector<Recorded>> programs_;  // by slot; the last batch of an epoch has its own
  Buffer pinned_results_;
  std::span<StepResult> results_;  // by slot
};

}  // namespace penstock
