// SPDX-License-Identifier: Apache-2.0
// The only way in which batches move between threads: a fixed number of slots. A producer fills a
// slot under a WriteLease, and a reader reads it under a ReadLease.
//
//   producers: acquire -> (await) -> fill -> publish
//   readers:   next -> (await) -> use -> release
//
// Leases order the host's threads; streams order the device's work. A lease may pass on while a
// device still works on its slot. `await` makes a host thread or a stream wait for that work.
//
// A slot may show borrowed pixels instead of its own. The ring tells their owner when the readers
// are done with them. The labels are always the slot's own.
//
// Thread-safety: acquire, close, fail and monitor may be called from any thread; next(r) from one
// thread per reader r. A lease belongs to one thread at a time. The ring must outlive its leases.
// The ring allocates nothing after construction, and holds no lock while pixels move.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "dataflow/batch.h"
#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/ring_monitor.h"

namespace penstock {

class BatchRing;

/// An owner puts its own pixels into a slot of a ring in place of the slot's own, and hears when no
/// reader uses them any more.
class ForeignPixels {
 public:
  virtual ~ForeignPixels() = default;
  /// The loan in this slot is over: the batch was read, or the slot was freed without being read.
  /// `read` is reached once the device is done with the pixels, and stays so until the slot is
  /// published again; null: every read is done already. The ring owns `read`; do not use it after
  /// the ring is destroyed.
  ///
  /// The ring calls this once for each loan, on the thread that ends it, under the ring's lock and
  /// before the slot is free. It must only take note: it must neither block nor call the ring.
  virtual void returned(std::int32_t slot, const Event* read) noexcept = 0;
};

/// The right to fill one slot. If it is destroyed unpublished, the slot is free again and nothing
/// is sent.
class WriteLease {
 public:
  WriteLease() = default;
  WriteLease(WriteLease&& other) noexcept;
  WriteLease& operator=(WriteLease&& other) noexcept;
  ~WriteLease();

  /// False if the ring was closed, or a stop was requested.
  explicit operator bool() const noexcept { return ring_ != nullptr; }
  Batch& batch() const noexcept;

  /// Blocks the calling thread until the slot's last reader is done with it.
  void await();
  /// Makes all work that is enqueued on `writer` from now on wait for the slot's last reader.
  void await(Stream& writer);

  /// Makes readers see `pixels`. Call it after await. `pixels` has the size of the slot's own
  /// pixels, and must not change until the ring tells `owner` that the loan is over. If the ring
  /// takes loans, `pixels` may be any memory; otherwise it is the slot's own, and the only effect
  /// is that `owner` is told. The ring keeps the owner until the slot is lent again or the ring
  /// is destroyed.
  void lend(std::span<const std::byte> pixels, std::shared_ptr<ForeignPixels> owner);

  /// Makes the batch readable now. Sets its sequence number. Sets `offered` to the present, unless
  /// the writer has set it.
  void publish() &&;
  /// Makes the batch readable once `writer` reaches this point.
  void publish(Stream& writer) &&;

 private:
  friend class BatchRing;
  WriteLease(BatchRing& ring, std::size_t slot) : ring_(&ring), slot_(slot) {}
  BatchRing* ring_ = nullptr;
  std::size_t slot_ = 0;
};

/// The right to read one slot. If it is destroyed, the slot is free again at once.
class ReadLease {
 public:
  ReadLease() = default;
  ReadLease(ReadLease&& other) noexcept;
  ReadLease& operator=(ReadLease&& other) noexcept;
  ~ReadLease();

  /// False at the end of data, or if a stop was requested.
  explicit operator bool() const noexcept { return ring_ != nullptr; }
  const Batch& batch() const noexcept;

  /// Blocks the calling thread until the slot has been written.
  void await();
  /// Makes all work that is enqueued on `reader` from now on wait until the slot has been written.
  void await(Stream& reader);

  /// The event that is reached once the slot has been written; null: it has been written already.
  /// It belongs to this batch until the next batch in the same slot has been released.
  const Event* written() const noexcept;

  /// Frees the slot at once. A producer may take it now, and may overwrite it once `reader` reaches
  /// this point.
  void release(Stream& reader) &&;

 private:
  friend class BatchRing;
  ReadLease(BatchRing& ring, std::size_t slot, std::size_t reader)
      : ring_(&ring), slot_(slot), reader_(reader) {}
  BatchRing* ring_ = nullptr;
  std::size_t slot_ = 0, reader_ = 0;
};

/// strict: batch k goes to reader k mod R. relaxed: to the reader that has waited longest.
enum class Order : std::uint8_t { strict, relaxed };

class BatchRing {
 public:
  /// `memory` owns the slots. `readers` are the devices that read them, one per reader; they make
  /// the events that say when a reader is done. The devices and the clock must outlive the ring.
  BatchRing(const BatchSpec& spec, std::size_t slots, Device& memory, MemoryKind kind,
            std::span<Device* const> readers, Order order, Clock& clock);
  BatchRing(const BatchRing&) = delete;
  BatchRing& operator=(const BatchRing&) = delete;
  /// Ends all open loans, once the devices are done with them.
  ~BatchRing();

  /// Says that the readers read pixels from any memory, and write to none. Call it before any
  /// thread uses the ring.
  void accept_foreign() noexcept { accepts_foreign_ = true; }
  bool accepts_foreign() const noexcept { return accepts_foreign_; }
  /// Producers fill `batches` slots, then wait until every slot is free again. 0: they fill each
  /// slot as soon as it is free. Call it before any thread uses the ring.
  void fill_in_groups(std::size_t batches) noexcept { group_ = batches; }

  const BatchSpec& spec() const noexcept { return spec_; }
  std::size_t slots() const noexcept { return slots_.size(); }
  std::size_t readers() const noexcept { return reader_count_; }
  /// The memory of one slot: pixels, then labels. Only the lease holder may access it; any thread
  /// may query the address.
  std::span<std::byte> memory(std::size_t slot) const noexcept {
    return slots_[slot].memory.bytes();
  }

  /// Blocks until a slot is free. The lease is empty if a stop was requested, or the ring was
  /// closed or failed.
  [[nodiscard]] WriteLease acquire(std::stop_token stop);
  /// As above, for a thread that can work while it waits: calls `meanwhile` in a loop, without the
  /// lock, until a slot is free. `meanwhile` must return from time to time, and soon after the
  /// owner of a slot hears that its loan is over.
  [[nodiscard]] WriteLease acquire(std::stop_token stop, const std::function<void()>& meanwhile);
  /// Blocks until a batch is published for this reader. The lease is empty at the end of data, or
  /// if a stop was requested. After fail(), it rethrows the reason once the batches published
  /// before it are read.
  [[nodiscard]] ReadLease next(std::size_t reader, std::stop_token stop);

  /// Says that no more batches will come. Readers still get the batches that are published.
  void close() noexcept;
  /// As close(), with a reason that every reader rethrows. Only the first call of close() or fail()
  /// counts.
  void fail(std::exception_ptr reason) noexcept;

  RingMonitor& monitor() noexcept { return monitor_; }
  const RingMonitor& monitor() const noexcept { return monitor_; }

 private:
  friend class WriteLease;
  friend class ReadLease;

  struct Slot {
    Buffer memory;
    Batch batch;
    std::array<std::unique_ptr<Event>, 2> write_events;  // in turn, recorded by publish(Stream&)
    std::vector<std::unique_ptr<Event>> read;  // one per reader; recorded by release(Stream&)
    Event* written = nullptr;          // for the current batch; null: published without a stream
    const Event* last_read = nullptr;  // the event that await() waits for; may be null
    std::shared_ptr<ForeignPixels> owner;  // the owner of the last loan
    bool lent = false;                     // true until the last loan is over
  };
  /// A first-in, first-out list of slot numbers that never allocates.
  class Fifo {
   public:
    explicit Fifo(std::size_t capacity) : items_(capacity) {}
    void push(std::size_t slot);
    std::size_t pop();
    std::size_t size() const noexcept { return size_; }

   private:
    std::vector<std::size_t> items_;
    std::size_t first_ = 0, size_ = 0;
  };

  std::span<std::byte> own_pixels(const Slot& slot) const noexcept {
    return slot.memory.bytes().first(spec_.pixel_bytes());
  }
  bool can_acquire() const noexcept;
  WriteLease take_free(const std::stop_token& stop);
  void drop(std::size_t slot) noexcept;
  void end_loan(Slot& slot, const Event* read) noexcept;
  void publish(std::size_t slot, Stream* writer);
  void give_back(std::size_t slot) noexcept;
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, Gate& gate, std::int64_t& waiting,
            const std::stop_token& stop, Ready ready);
  Fifo& queue_of(std::size_t reader) noexcept;
  std::size_t readers_ahead_of(std::size_t reader) const noexcept;

  const BatchSpec spec_;
  const std::size_t reader_count_;
  const Order order_;
  Clock& clock_;
  bool accepts_foreign_ = false;
  std::size_t group_ = 0;
  std::vector<Slot> slots_;

  std::mutex mutex_;
  // mutex_ protects everything below.
  Gate free_gate_, filled_gate_;
  Fifo free_;
  std::vector<Fifo> filled_;          // one per reader if strict, else one
  std::vector<std::uint64_t> asked_;  // per reader: the number of its current request; 0: none
  std::uint64_t asks_ = 0;
  std::uint64_t acquired_ = 0;  // write leases, without those that ended unpublished
  RingLevels levels_;
  RingMonitor monitor_{levels_, mutex_, clock_};
  bool closed_ = false;
  std::exception_ptr failure_;
};

}  // namespace penstock
