// SPDX-License-Identifier: Apache-2.0
#include "trainer/replica.h"

#include <algorithm>
#include <utility>

#include "dataflow/error.h"
#include "trainer/exchange.h"

namespace penstock {

Replica::Replica(BatchRing& input, Device& device, Parts parts, Phase phase, Clock& clock)
    : input_(input),
      parts_(std::move(parts)),
      phase_(phase),
      clock_(clock),
      stream_(device.make_stream()),
      origin_(device.make_event()),
      launched_(input.slots() + 1),
      programs_(input.slots()),
      pinned_results_(device.allocate(input.slots() * sizeof(StepResult), MemoryKind::pinned)),
      results_(reinterpret_cast<StepResult*>(pinned_results_.bytes().data()), input.slots()) {
  std::uninitialized_value_construct(results_.begin(), results_.end());
  for (Launched& launched : launched_) {
    launched.begun = device.make_event();
    launched.done = device.make_event();
    if (parts_.waits && phase == Phase::train) launched.computed = device.make_event();
  }
}

template <typename Call>
auto Replica::in_step(std::int64_t step, const Call& call) {
  try {
    return call();
  } catch (const DeviceError& error) {
    throw DeviceError("in step {}: {}", step + 1, error.what());
  }
}

Replica::Ending Replica::run(std::size_t steps, Leg& leg, const OnStep& on_step,
                             std::stop_token stop) {
  leg.steps.assign(steps, {});
  Ending ending = Ending::completed;
  const std::int64_t first = step_;
  const std::size_t ahead = input_.slots();
  std::size_t launched = 0, finished = 0;
  const auto finish_one = [&] {
    const bool done = in_step(first + static_cast<std::int64_t>(finished),
                              [&] { return finish(finished, leg, on_step); });
    if (done) {
      ++finished;
    } else {  // the device is stopped
      ending = Ending::stopped;
      step_ -= static_cast<std::int64_t>(launched - finished);
      launched = finished;
    }
  };
  const auto end_leg = [&] {
    leg.end = clock_.now();
    leg.steps.resize(finished);
  };
  stream_->record(*origin_);
  leg.begin = clock_.now();
  try {
    while (launched < steps && ending == Ending::completed) {
      StepTimes& times = leg.steps[launched];
      ReadLease lease = in_step(step_, [&] { return next(times, stop); });
      if (!lease) {
        ending = stop.stop_requested() ? Ending::stopped : Ending::end_of_data;
        break;
      }
      in_step(step_, [&] { take_step(std::move(lease), launched_at(launched), times); });
      if (++launched - finished == ahead) finish_one();
    }
    while (finished < launched) finish_one();
  } catch (...) {
    try {
      while (finished < launched) finish_one();
    } catch (const DeviceError&) {  // secondary to the exception being thrown
    }
    end_leg();
    throw;
  }
  end_leg();
  return ending;
}

ReadLease Replica::next(StepTimes& times, std::stop_token stop) {
  const Mark mark(parts_.marks, "wait for a batch");
  times.requested = clock_.now();
  ReadLease lease = input_.next(0, std::move(stop));
  times.input_wait = clock_.now() - times.requested;
  return lease;
}

void Replica::take_step(ReadLease lease, Launched& launched, StepTimes& times) {
  const Mark mark(parts_.marks, "step");
  launched.offered = lease.batch().offered;
  times.begins_epoch = lease.batch().begins_epoch;
  launched.written = lease.written();
  try {
    lease.await(*stream_);
    launch(lease.batch(), launched);
    std::move(lease).release(*stream_);
  } catch (...) {
    settle(*stream_, *launched.done);  // the lease may be returned now
    throw;
  }
  times.enqueue = clock_.now() - (times.requested + times.input_wait);
}

Program& Replica::program_for(const Batch& batch) {
  const auto slot = static_cast<std::size_t>(batch.slot);
  for (const Recorded& known : programs_[slot]) {
    if (known.images == batch.valid) return *known.program;
  }
  // The ring's batch views live as long as the ring, so a program may keep a reference.
  auto program = stream_->capture([this, &batch, slot] {
    const bool trains = phase_ == Phase::train;
    const GradientReady ready = trains ? parts_.update.gradient_ready(*stream_) : GradientReady();
    parts_.executable.run(phase_, batch, *stream_, ready, results_[slot]);
    if (parts_.record_update) update(slot);
  });
  programs_[slot].push_back({batch.valid, std::move(program)});
  return *programs_[slot].back().program;
}

void Replica::launch(const Batch& batch, Launched& launched) {
  const auto slot = static_cast<std::size_t>(batch.slot);
  Program& program = program_for(batch);
  stream_->record(*launched.begun);
  if (phase_ == Phase::train) parts_.optimizer.set(parts_.hyper(step_), *stream_);
  program.launch(*stream_);
  if (launched.computed != nullptr) stream_->record(*launched.computed);
  if (!parts_.record_update) update(slot);
  ++step_;  // not reached if an exchange was abandoned
  stream_->record(*launched.done);
  launched.slot = batch.slot;
}

void Replica::update(std::size_t slot) {
  if (phase_ != Phase::train) return;
  parts_.update.finish_step(parts_.executable, *stream_, results_[slot]);
}

/// False if the device is stopped before the end of the step.
bool Replica::finish(std::size_t step, Leg& leg, const OnStep& on_step) {
  const Launched& launched = launched_at(step);
  if (!launched.done->wait_until(Time::max())) return false;
  const StepResult& result = results_[static_cast<std::size_t>(launched.slot)];
  StepTimes& times = leg.steps[step];
  if (step == 0) {
    times.start = launched.begun->since(*origin_);
  } else {
    // Uses two consecutive steps, because devices measure short times more finely than long ones.
    times.device_idle = launched.begun->since(*launched_at(step - 1).done);
    times.start = leg.steps[step - 1].completion + times.device_idle;
  }
  times.completion = times.start + launched.done->since(*launched.begun);
  times.offered = launched.offered - leg.begin;
  times.copied = times.offered;
  if (launched.written != nullptr) {
    launched.written->wait_until(Time::max());  // it is done: the step after it is done
    const Nanoseconds lay_ready = launched.begun->since(*launched.written);
    times.copied = std::max(times.offered, times.start - lay_ready);
  }
  if (parts_.exchange != nullptr) times.exchange = parts_.exchange->exposed(finished_);
  if (launched.computed != nullptr) times.exchange = launched.done->since(*launched.computed);
  ++finished_;
  times.result = result;
  if (on_step) on_step(step, times);
  return true;
}

}  // namespace penstock
