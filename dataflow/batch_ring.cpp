// SPDX-License-Identifier: Apache-2.0
#include "dataflow/batch_ring.h"

#include <algorithm>
#include <utility>

#include "dataflow/error.h"

namespace penstock {

// ---- leases -----------------------------------------------------------------

WriteLease::WriteLease(WriteLease&& other) noexcept
    : ring_(std::exchange(other.ring_, nullptr)), slot_(other.slot_) {}

WriteLease& WriteLease::operator=(WriteLease&& other) noexcept {
  std::swap(ring_, other.ring_);
  std::swap(slot_, other.slot_);
  return *this;
}

WriteLease::~WriteLease() {
  if (ring_ != nullptr) ring_->drop(slot_);
}

Batch& WriteLease::batch() const noexcept { return ring_->slots_[slot_].batch; }

void WriteLease::await() {
  const Event* last_read = ring_->slots_[slot_].last_read;
  if (last_read != nullptr) last_read->wait_until(Time::max());
}

void WriteLease::await(Stream& writer) {
  const Event* last_read = ring_->slots_[slot_].last_read;
  if (last_read != nullptr) writer.wait_for(*last_read);
}

void WriteLease::lend(std::span<const std::byte> pixels, std::shared_ptr<ForeignPixels> owner) {
  BatchRing::Slot& slot = ring_->slots_[slot_];
  const std::span<std::byte> own = ring_->own_pixels(slot);
  PENSTOCK_ASSERT(!slot.lent && pixels.size() == own.size());
  PENSTOCK_ASSERT(ring_->accepts_foreign_ || pixels.data() == own.data());
  // A ring that takes loans has readers that never write to a batch.
  slot.batch.pixels = {const_cast<std::byte*>(pixels.data()), pixels.size()};
  slot.owner = std::move(owner);
  slot.lent = true;
}

void WriteLease::publish() && { std::exchange(ring_, nullptr)->publish(slot_, nullptr); }
void WriteLease::publish(Stream& writer) && {
  std::exchange(ring_, nullptr)->publish(slot_, &writer);
}

ReadLease::ReadLease(ReadLease&& other) noexcept
    : ring_(std::exchange(other.ring_, nullptr)), slot_(other.slot_), reader_(other.reader_) {}

ReadLease& ReadLease::operator=(ReadLease&& other) noexcept {
  std::swap(ring_, other.ring_);
  std::swap(slot_, other.slot_);
  std::swap(reader_, other.reader_);
  return *this;
}

ReadLease::~ReadLease() {
  if (ring_ == nullptr) return;
  ring_->slots_[slot_].last_read = nullptr;
  ring_->give_back(slot_);
}

const Batch& ReadLease::batch() const noexcept { return ring_->slots_[slot_].batch; }

const Event* ReadLease::written() const noexcept { return ring_->slots_[slot_].written; }

void ReadLease::await() {
  if (written() != nullptr) written()->wait_until(Time::max());
}

void ReadLease::await(Stream& reader) {
  if (written() != nullptr) reader.wait_for(*written());
}

void ReadLease::release(Stream& reader) && {
  BatchRing::Slot& slot = ring_->slots_[slot_];
  Event& done = *slot.read[reader_];
  reader.record(done);
  slot.last_read = &done;
  std::exchange(ring_, nullptr)->give_back(slot_);
}

// ---- ring -------------------------------------------------------------------

void BatchRing::Fifo::push(std::size_t slot) {
  items_[(first_ + size_) % items_.size()] = slot;
  ++size_;
}

std::size_t BatchRing::Fifo::pop() {
  const std::size_t slot = items_[first_];
  first_ = (first_ + 1) % items_.size();
  --size_;
  return slot;
}

BatchRing::BatchRing(const BatchSpec& spec, std::size_t slots, Device& memory, MemoryKind kind,
                     std::span<Device* const> readers, Order order, Clock& clock)
    : spec_(spec),
      reader_count_(readers.size()),
      order_(order),
      clock_(clock),
      slots_(slots),
      free_(slots),
      filled_(order == Order::strict ? readers.size() : 1, Fifo(slots)),
      asked_(readers.size()) {
  PENSTOCK_ASSERT(slots > 0 && !readers.empty());
  for (std::size_t index = 0; index < slots; ++index) {
    Slot& slot = slots_[index];
    slot.memory = memory.allocate(spec.bytes(), kind);
    const std::span<std::byte> bytes = slot.memory.bytes();
    auto* labels = reinterpret_cast<std::int32_t*>(bytes.data() + spec.pixel_bytes());
    slot.batch.pixels = own_pixels(slot);
    slot.batch.labels = {labels, static_cast<std::size_t>(spec.images)};
    slot.batch.slot = static_cast<std::int32_t>(index);
    for (std::unique_ptr<Event>& event : slot.write_events) event = memory.make_event();
    for (Device* reader : readers) slot.read.push_back(reader->make_event());
    free_.push(index);
  }
  levels_.free = slots;
}

BatchRing::~BatchRing() {
  for (Slot& slot : slots_) {
    if (slot.owner == nullptr) continue;
    try {
      if (slot.last_read != nullptr) slot.last_read->wait_until(Time::max());
    } catch (const DeviceError&) {
      // A device that cannot even wait reads no more.
    }
    end_loan(slot, nullptr);
  }
}

BatchRing::Fifo& BatchRing::queue_of(std::size_t reader) noexcept {
  return filled_[order_ == Order::strict ? reader : 0];
}

/// Counts the waiting readers that share this reader's queue and asked before it. Under mutex_.
std::size_t BatchRing::readers_ahead_of(std::size_t reader) const noexcept {
  if (order_ == Order::strict) return 0;
  return static_cast<std::size_t>(
      std::count_if(asked_.begin(), asked_.end(),
                    [&](std::uint64_t ask) { return ask != 0 && ask < asked_[reader]; }));
}

/// Blocks until `ready` or stopped. Calls account() before each change of a level, and only then.
template <typename Ready>
void BatchRing::wait(std::unique_lock<std::mutex>& lock, Gate& gate, std::int64_t& waiting,
                     const std::stop_token& stop, Ready ready) {
  if (ready()) return;
  monitor_.account();
  ++waiting;
  clock_.wait(lock, gate, stop, ready);
  monitor_.account();
  --waiting;
}

WriteLease BatchRing::acquire(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  wait(lock, free_gate_, levels_.waiting_producers, stop,
       [this] { return can_acquire() || closed_; });
  return take_free(stop);
}

WriteLease BatchRing::acquire(std::stop_token stop, const std::function<void()>& meanwhile) {
  std::unique_lock lock(mutex_);
  while (!can_acquire() && !closed_ && !stop.stop_requested()) {
    monitor_.account();
    ++levels_.waiting_producers;
    lock.unlock();
    std::exception_ptr failure;
    try {
      meanwhile();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    monitor_.account();
    --levels_.waiting_producers;
    if (failure) std::rethrow_exception(failure);
  }
  return take_free(stop);
}

/// A group's first slot is taken only when all slots are free. Under mutex_.
bool BatchRing::can_acquire() const noexcept {
  const bool begins_group = group_ > 0 && acquired_ % group_ == 0;
  return levels_.free >= (begins_group ? slots_.size() : 1);
}

/// The lease is empty if no slot is available. Under mutex_.
WriteLease BatchRing::take_free(const std::stop_token& stop) {
  if (closed_ || stop.stop_requested() || !can_acquire()) return {};
  monitor_.account();
  ++acquired_;
  const std::size_t slot = free_.pop();
  --levels_.free;
  slots_[slot].batch.valid = spec_.images;
  slots_[slot].batch.bytes = spec_.pixel_bytes();
  slots_[slot].batch.begins_epoch = false;
  slots_[slot].batch.offered = {};
  return {*this, slot};
}

ReadLease BatchRing::next(std::size_t reader, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  Fifo& queue = queue_of(reader);
  asked_[reader] = ++asks_;
  wait(lock, filled_gate_, levels_.waiting_readers, stop,
       [&] { return queue.size() > readers_ahead_of(reader) || closed_; });
  asked_[reader] = 0;
  if (stop.stop_requested()) {
    clock_.wake(filled_gate_);  // wakes the readers that asked after this one
    return {};
  }
  if (queue.size() > 0) {
    monitor_.account();
    const std::size_t slot = queue.pop();
    --levels_.filled;
    monitor_.note_depth();
    return {*this, slot, reader};
  }
  if (failure_) std::rethrow_exception(failure_);
  return {};
}

void BatchRing::publish(std::size_t index, Stream* writer) {
  Slot& slot = slots_[index];
  if (writer != nullptr) {
    Event* const first = slot.write_events[0].get();
    slot.written = slot.written == first ? slot.write_events[1].get() : first;
    writer->record(*slot.written);
  } else {
    slot.written = nullptr;
  }
  if (slot.batch.offered == Time{}) slot.batch.offered = clock_.now();
  const std::lock_guard lock(mutex_);
  monitor_.account();
  slot.batch.sequence = levels_.published++;
  queue_of(slot.batch.sequence % reader_count_).push(index);
  ++levels_.filled;
  monitor_.note_depth();
  clock_.wake(filled_gate_);
}

void BatchRing::give_back(std::size_t slot) noexcept {
  const std::lock_guard lock(mutex_);
  monitor_.account();
  end_loan(slots_[slot], slots_[slot].last_read);
  free_.push(slot);
  ++levels_.free;
  clock_.wake(free_gate_);
}

/// Frees a slot that was not published.
void BatchRing::drop(std::size_t slot) noexcept {
  {
    const std::lock_guard lock(mutex_);
    --acquired_;
  }
  give_back(slot);
}

void BatchRing::end_loan(Slot& slot, const Event* read) noexcept {
  if (!std::exchange(slot.lent, false)) return;
  slot.batch.pixels = own_pixels(slot);
  slot.owner->returned(slot.batch.slot, read);
}

void BatchRing::close() noexcept { fail(nullptr); }

void BatchRing::fail(std::exception_ptr reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (!closed_) failure_ = std::move(reason);
  closed_ = true;
  clock_.wake(free_gate_);
  clock_.wake(filled_gate_);
}

}  // namespace penstock
