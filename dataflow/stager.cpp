// SPDX-License-Identifier: Apache-2.0
#include "dataflow/stager.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "dataflow/error.h"

namespace penstock {

Stager::Stager(BatchRing& host, std::size_t reader, BatchRing& device_ring, Device& device,
               const Marks& marks, Holding holding)
    : host_(host),
      reader_(reader),
      device_ring_(device_ring),
      device_(device),
      stream_(device.make_stream()),
      settled_(device.make_event()),
      marks_(marks),
      holding_(holding) {
  PENSTOCK_ASSERT(host.spec() == device_ring.spec());
  PENSTOCK_ASSERT(holding != Holding::read || device_ring.slots() == 1);
}

void Stager::count(StageCounters& stage, const Clock& clock) {
  if (!stage.on) return;
  stage_ = &stage;
  clock_ = &clock;
  waits_ = StageTimer(stage, clock);
  // After twice as many copies as slots, each slot was read again, so its earlier copy is done.
  timings_.resize(2 * device_ring_.slots() + 1);
  for (Timing& timing : timings_) {
    timing.begun = device_.make_event();
    timing.done = device_.make_event();
  }
}

void Stager::run(std::stop_token stop) noexcept {
  try {
    copy_all(std::move(stop));
    device_ring_.close();
  } catch (...) {
    device_ring_.fail(std::current_exception());
  }
  settle(*stream_, *settled_);  // the host's slots may be freed from now on
  held_ = {};
}

void Stager::copy_all(std::stop_token stop) {
  const auto slot = [&] {
    const Mark mark(marks_, "wait for a slot");
    const auto wait = waits_.wait_out();
    return device_ring_.acquire(stop);
  };
  const auto next = [&] {
    const Mark mark(marks_, "wait for a batch");
    const auto wait = waits_.wait_in();
    return host_.next(reader_, stop);
  };
  while (WriteLease to = slot()) {
    if (held_) give_back(to);
    ReadLease from = next();
    if (!from) return;
    held_ = copy(std::move(from), std::move(to));
  }
}

/// Gives the batch of the last copy back, now that there is a device slot for the next one.
void Stager::give_back(WriteLease& next) {
  if (holding_ == Holding::launched) return std::exchange(held_, {}).release(*stream_);
  next.await();  // the last reader of this slot is the step that read the batch
  held_ = {};
}

/// Returns the batch if it is held.
ReadLease Stager::copy(ReadLease from, WriteLease to) {
  const Mark mark(marks_, "copy");
  try {
    from.await(*stream_);
    to.await(*stream_);
    enqueue(from.batch(), to.batch());
    to.batch().offered = from.batch().offered;
    if (holding_ == Holding::none) std::move(from).release(*stream_);
    std::move(to).publish(*stream_);
    return from;
  } catch (...) {
    settle(*stream_, *settled_);  // makes it safe to give the leases back
    throw;
  }
}

void Stager::enqueue(const Batch& from, Batch& to) {
  Timing* const timing = stage_ != nullptr ? &next_timing() : nullptr;
  const Time asked = timing != nullptr ? clock_->now() : Time{};
  const Nanoseconds cpu = timing != nullptr ? thread_cpu_time() : Nanoseconds{};
  if (timing != nullptr) stream_->record(*timing->begun);
  stream_->copy(to.pixels.first(from.bytes), from.pixels.first(from.bytes));
  stream_->copy(std::as_writable_bytes(to.labels), std::as_bytes(from.labels));
  to.valid = from.valid;
  to.bytes = from.bytes;
  to.begins_epoch = from.begins_epoch;
  if (timing == nullptr) return;
  stream_->record(*timing->done);
  timing->cpu = thread_cpu_time() - cpu;
  timing->wall = clock_->now() - asked;
  timing->open = true;
  stage_->items.add();
  stage_->images.add(from.valid);
  stage_->bytes.add(static_cast<std::int64_t>(from.bytes + from.labels.size_bytes()));
}

/// The record for the next copy. First counts the copy that used it before.
Stager::Timing& Stager::next_timing() {
  Timing& timing = timings_[copies_++ % timings_.size()];
  if (!std::exchange(timing.open, false)) return timing;
  timing.done->wait_until(Time::max());
  const Nanoseconds copying = timing.done->since(*timing.begun);
  stage_->timed_items.add();
  stage_->cpu_ns.add(timing.cpu.count());
  stage_->wall_ns.add(copying.count());
  stage_->wait_out.add(std::max(Nanoseconds{}, timing.wall - copying));
  return timing;
}

}  // namespace penstock
