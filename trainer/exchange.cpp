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

std::vector<std::size_t> parameters_of(const BucketPlan& plan) {
  std::vector<std::size_t> counts;
  for (const Bucket& bucket : plan.buckets()) counts.push_back(bucket.parameters);
  return counts;
}

}  // namespace

ExchangeTimes& ExchangeTimes::operator+=(const ExchangeTimes& other) {
  steps += other.steps;
  busy += other.busy;
  exposed += other.exposed;
  if (buckets.empty()) {
    buckets = other.buckets;
    return *this;
  }
  for (std::size_t i = 0; i < other.buckets.size(); ++i) {
    buckets.at(i).lead += other.buckets[i].lead;
    buckets.at(i).busy += other.buckets[i].busy;
  }
  return *this;
}

ExchangeTimes& ExchangeTimes::operator-=(const ExchangeTimes& other) {
  steps -= other.steps;
  busy -= other.busy;
  exposed -= other.exposed;
  for (std::size_t i = 0; i < other.buckets.size(); ++i) {
    buckets.at(i).lead -= other.buckets[i].lead;
    buckets.at(i).busy -= other.buckets[i].busy;
  }
  return *this;
}

Nanoseconds least_exposed(std::span<const BucketTimes> buckets) {
  Nanoseconds done = Nanoseconds::min();  // before the end of backward, where negative
  for (const BucketTimes& bucket : buckets) done = std::max(done, -bucket.lead) + bucket.busy;
  return std::max(done, Nanoseconds(0));
}

GradientExchange::GradientExchange(Collective& collective, const ParameterSet& set, Device& device,
                                   Clock& clock, const BucketLimits& limits)
    : collective_(collective),
      clock_(clock),
      plan_(set, limits),
      stream_(device.make_stream()),
      complete_(make_events(device, plan_.buckets().size())),
      backward_done_(device.make_event()),
      exchanged_(device.make_event()),
      missing_(parameters_of(plan_)),
      completed_(plan_.buckets().size()),
      times_(no_times(plan_)),
      busy_(plan_.buckets().size()) {}

GradientExchange::~GradientExchange() = default;  // thread_ ends first, by its own stop request

void GradientExchange::start() {
  PENSTOCK_ASSERT(!thread_.joinable());
  thread_ = std::jthread(
      [this, participant = Clock::Participant(clock_)](const std::stop_token& stop) { run(stop); });
}

// ---- the replica's thread ---------------------------------------------------

GradientReady GradientExchange::ready(Stream& stream) {
  return [this, &stream](std::size_t parameter) { complete(parameter, stream); };
}

void GradientExchange::complete(std::size_t parameter, Stream& stream) {
  std::size_t& missing = missing_[plan_.bucket_of(parameter)];
  PENSTOCK_ASSERT(missing > 0);
  --missing;
  std::size_t end = handed_;
  while (end < missing_.size() && missing_[end] == 0) ++end;
  if (end > handed_) hand_over(end, stream);
}

void GradientExchange::hand_over(std::size_t end, Stream& stream) {
  const Time now = clock_.now();
  for (; handed_ < end; ++handed_) {
    stream.record(*complete_[handed_]);
    completed_[handed_] = now;
  }
  const std::lock_guard lock(mutex_);
  given_ = end;
  clock_.wake(gate_);
}

void GradientExchange::finish(Stream& stream) {
  PENSTOCK_ASSERT(thread_.joinable());
  hand_over(missing_.size(), stream);
  stream.record(*backward_done_);
  backward_done_->wait_until(Time::max());  // it is, but on devices that only keep time
  const Time begin = clock_.now();
  std::unique_lock lock(mutex_);
  // Without a stop: either all ranks get through their last bucket, or none does.
  clock_.wait(lock, gate_, {}, [&] { return failure_ != nullptr || done_ == missing_.size(); });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  ++times_.steps;
  times_.exposed += clock_.now() - begin;
  for (std::size_t i = 0; i < times_.buckets.size(); ++i) {
    times_.buckets[i].lead += begin - completed_[i];
    times_.buckets[i].busy += busy_[i];
    times_.busy += busy_[i];
  }
  given_ = done_ = 0;
  handed_ = 0;
  for (std::size_t i = 0; i < missing_.size(); ++i) missing_[i] = plan_.buckets()[i].parameters;
  stream.wait_for(*exchanged_);
}

ExchangeTimes GradientExchange::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

// ---- the communication thread -----------------------------------------------

void GradientExchange::run(const std::stop_token& stop) {
  try {
    for (std::size_t bucket = 0; await_bucket(stop); bucket = (bucket + 1) % missing_.size()) {
      exchange(bucket);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    clock_.wake(gate_);
  }
}

/// False: the exchange is being destroyed.
bool GradientExchange::await_bucket(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  return clock_.wait(lock, gate_, stop, [&] { return done_ < given_; }) && !stop.stop_requested();
}

void GradientExchange::exchange(std::size_t bucket) {
  const Time begin = clock_.now();
  stream_->wait_for(*complete_[bucket]);
  collective_.all_reduce_sum(plan_.buckets()[bucket].gradients, *stream_);
  stream_->record(*exchanged_);
  const std::lock_guard lock(mutex_);
  busy_[bucket] = clock_.now() - begin;
  ++done_;
  clock_.wake(gate_);
}

}  // namespace penstock
