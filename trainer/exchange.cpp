// SPDX-License-Identifier: Apache-2.0
#include "trainer/exchange.h"

#include <algorithm>

#include "dataflow/error.h"

namespace penstock {
namespace {

std::vector<std::unique_ptr<Event>> make_events(Device& device, std::size_t count) {
  std::vector<std::unique_ptr<Event>> events(count);
  for (auto& event : events) event = device.make_event();
  return events;
}

ExchangeTimes no_times(const BucketPlan& plan) {
  ExchangeTimes times;
  for (const Bucket& bucket : plan.buckets()) {
    times.buckets.push_back({.bytes = bucket.gradients.count * sizeof(float)});
  }
  return times;
}

void add(ExchangeTimes& to, const ExchangeTimes& other, std::int64_t sign) {
  to.steps += sign * other.steps;
  to.busy += sign * other.busy;
  to.exposed += sign * other.exposed;
  for (std::size_t i = 0; i < other.buckets.size(); ++i) {
    to.buckets.at(i).lead += sign * other.buckets[i].lead;
    to.buckets.at(i).busy += sign * other.buckets[i].busy;
  }
}

}  // namespace

ExchangeTimes& ExchangeTimes::operator+=(const ExchangeTimes& other) {
  if (buckets.empty()) {
    for (const BucketTimes& bucket : other.buckets) buckets.push_back({.bytes = bucket.bytes});
  }
  add(*this, other, 1);
  return *this;
}

ExchangeTimes& ExchangeTimes::operator-=(const ExchangeTimes& other) {
  add(*this, other, -1);
  return *this;
}

Nanoseconds least_exposed(std::span<const BucketTimes> buckets) {
  Nanoseconds done = Nanoseconds::min();  // relative to the end of backward
  for (const BucketTimes& bucket : buckets) done = std::max(done, -bucket.lead) + bucket.busy;
  return std::max(done, Nanoseconds(0));
}

ThreadExchange::ThreadExchange(Collective& collective, const ParameterSet& set, Device& device,
                               Clock& clock, const BucketLimits& limits, std::size_t in_flight)
    : collective_(collective),
      clock_(clock),
      plan_(set, limits),
      stream_(device.make_stream()),
      complete_(make_events(device, plan_.buckets().size())),
      backward_done_(device.make_event()),
      exchanged_(device.make_event()),
      progress_(plan_),
      completed_(plan_.buckets().size()),
      exposed_(in_flight),
      times_(no_times(plan_)),
      busy_(plan_.buckets().size()) {}

ThreadExchange::~ThreadExchange() = default;  // thread_ ends first, by its own stop request

void ThreadExchange::start() {
  PENSTOCK_ASSERT(!thread_.joinable());
  thread_ = std::jthread(
      [this, participant = Clock::Participant(clock_)](const std::stop_token& stop) { run(stop); });
}

// ---- the replica's thread ---------------------------------------------------

GradientReady ThreadExchange::ready(Stream& stream) {
  return [this, &stream](std::size_t parameter) {
    const std::size_t end = progress_.complete(parameter);
    if (end > handed_) hand_over(end, stream);
  };
}

void ThreadExchange::hand_over(std::size_t end, Stream& stream) {
  const Time now = clock_.now();
  for (; handed_ < end; ++handed_) {
    stream.record(*complete_[handed_]);
    completed_[handed_] = now;
  }
  const std::lock_guard lock(mutex_);
  given_ = end;
  clock_.wake(gate_);
}

void ThreadExchange::finish(Stream& stream) {
  PENSTOCK_ASSERT(thread_.joinable());
  hand_over(complete_.size(), stream);
  stream.record(*backward_done_);
  backward_done_->wait_until(Time::max());  // it is done, except on devices that only keep time
  const Time begin = clock_.now();
  std::unique_lock lock(mutex_);
  // Waits without a stop token: all ranks complete their last bucket, or none does.
  clock_.wait(lock, gate_, {}, [&] { return failure_ != nullptr || done_ == complete_.size(); });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  ++times_.steps;
  Nanoseconds& exposed = exposed_[finished_++ % exposed_.size()];
  exposed = clock_.now() - begin;
  times_.exposed += exposed;
  for (std::size_t i = 0; i < times_.buckets.size(); ++i) {
    times_.buckets[i].lead += begin - completed_[i];
    times_.buckets[i].busy += busy_[i];
    times_.busy += busy_[i];
  }
  given_ = done_ = 0;
  handed_ = 0;
  progress_.begin();
  stream.wait_for(*exchanged_);
}

Nanoseconds ThreadExchange::exposed(std::size_t step) const {
  return step < finished_ ? exposed_[step % exposed_.size()] : Nanoseconds(0);
}

ExchangeTimes ThreadExchange::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

// ---- the communication thread -----------------------------------------------

void ThreadExchange::run(const std::stop_token& stop) {
  try {
    for (std::size_t bucket = 0; await_bucket(stop); bucket = (bucket + 1) % complete_.size()) {
      exchange(bucket);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    clock_.wake(gate_);
  }
}

/// False: the exchange is being destroyed.
bool ThreadExchange::await_bucket(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  return clock_.wait(lock, gate_, stop, [&] { return done_ < given_; }) && !stop.stop_requested();
}

void ThreadExchange::exchange(std::size_t bucket) {
  const Time begin = clock_.now();
  stream_->wait_for(*complete_[bucket]);
  collective_.all_reduce_sum(plan_.buckets()[bucket].gradients, *stream_);
  stream_->record(*exchanged_);
  const std::lock_guard lock(mutex_);
  busy_[bucket] = clock_.now() - begin;
  ++done_;
  clock_.wake(gate_);
}

// ---- on a stream ------------------------------------------------------------

StreamExchange::StreamExchange(Collective& collective, const ParameterSet& set, Device& device,
                               Clock& clock, const BucketLimits& limits, std::size_t in_flight)
    : collective_(collective),
      clock_(clock),
      plan_(set, limits),
      stream_(device.make_stream()),
      complete_(make_events(device, plan_.buckets().size())),
      progress_(plan_),
      steps_(in_flight),
      times_(no_times(plan_)) {
  PENSTOCK_ASSERT(in_flight > 0);
  for (Step& step : steps_) {
    step.backward_done = device.make_event();
    step.begun = make_events(device, complete_.size());
    step.done = make_events(device, complete_.size());
  }
}

GradientReady StreamExchange::ready(Stream& stream) {
  progress_.begin();
  reported_ = 0;
  return [this, &stream](std::size_t parameter) {
    for (const std::size_t end = progress_.complete(parameter); reported_ < end; ++reported_) {
      stream.record(*complete_[reported_]);
    }
  };
}

void StreamExchange::finish(Stream& stream) {
  Step& step = steps_[finished_++ % steps_.size()];
  if (const std::lock_guard lock(mutex_); step.pending) {
    add(step);
    step.pending = false;
  }
  for (std::size_t i = reported_; i < complete_.size(); ++i) stream.record(*complete_[i]);
  stream.record(*step.backward_done);
  for (std::size_t i = 0; i < complete_.size(); ++i) {
    stream_->wait_for(*complete_[i]);
    stream_->record(*step.begun[i]);
    collective_.all_reduce_sum(plan_.buckets()[i].gradients, *stream_);
    stream_->record(*step.done[i]);
  }
  stream.wait_for(*step.done.back());
  const std::lock_guard lock(mutex_);
  step.pending = true;
}

/// Called under the mutex.
void StreamExchange::add(const Step& step) const {
  const Event& end = *step.backward_done;
  end.wait_until(Time::max());  // it is done: see in_flight
  step.done.back()->wait_until(Time::max());
  ++times_.steps;
  times_.exposed += exposed_in(step);
  for (std::size_t i = 0; i < complete_.size(); ++i) {
    const Nanoseconds busy = step.done[i]->since(*step.begun[i]);
    times_.buckets[i].lead += end.since(*step.begun[i]);
    times_.buckets[i].busy += busy;
    times_.busy += busy;
  }
}

Nanoseconds StreamExchange::exposed(std::size_t step) const {
  return step < finished_ ? exposed_in(steps_[step % steps_.size()]) : Nanoseconds(0);
}

Nanoseconds StreamExchange::exposed_in(const Step& step) {
  return std::max(step.done.back()->since(*step.backward_done), Nanoseconds(0));
}

ExchangeTimes StreamExchange::times() const {
  const Time now = clock_.now();
  const std::lock_guard lock(mutex_);
  for (Step& step : steps_) {
    if (!step.pending || !step.backward_done->wait_until(now) ||
        !step.done.back()->wait_until(now)) {
      continue;
    }
    add(step);
    step.pending = false;
  }
  return times_;
}

}  // namespace penstock
