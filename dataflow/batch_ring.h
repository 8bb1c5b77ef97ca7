// SPDX-License-Identifier: Apache-2.0
// The one way by which batches move between threads: a fixed number of slots, written under a
// WriteLease, read under a ReadLease.
//
//   producers: acquire -> (await) -> fill -> publish        readers: next -> (await) -> use ->
//   release
//
// Leases move on the host, ordering moves on streams: a lease may be handed on while a device still
// works on its slot; `await` says who has to wait for that, a host thread or a stream.
//
// A slot may be lent somebody else's pixels, which its readers see in place of its own; whoever
// lent them is told when they are done. Labels are always the slot's own.
//
// A ring that is watched integrates how full it is over time, and what its producers and readers
// wait.
//
// Thread-safety: acquire, close, fail, stats and watching from any thread; next(r) from one thread
// per reader r. A lease belongs to one thread at a time. The ring outlives its leases. Nothing is
// allocated after construction, and no lock is held while pixels move.
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
#include "dataflow/depth_log.h"
#include "dataflow/device.h"
#include "dataflow/lender.h"
#include "dataflow/level_history.h"

namespace penstock {

class BatchRing;

/// The right to fill one slot. Destroyed unpublished: the slot is free again, nothing is sent.
class WriteLease {
 public:
  WriteLease() = default;
  WriteLease(WriteLease&& other) noexcept;
  WriteLease& operator=(WriteLease&& other) noexcept;
  ~WriteLease();

  /// False: the ring was closed, or a stop was requested.
  explicit operator bool() const noexcept { return ring_ != nullptr; }
  Batch& batch() const noexcept;

  /// The calling thread waits until the slot's last reader is done with it.
  void await();
  /// Work enqueued on `writer` from here on waits for the slot's last reader.
  void await(Stream& writer);

  /// After await: readers see `pixels`, as many as the slot's own, which stay as they are until
  /// `lender` is told that it has them back. They are somebody else's where the ring takes loans,
  /// or else the slot's own: then the news is all there is to it. The ring keeps the lender until
  /// the slot is lent again, or the ring ends.
  void lend(std::span<const std::byte> pixels, std::shared_ptr<Lender> lender);

  /// Readable now. Sets the batch's sequence number, and `offered` to the present unless the writer
  /// has set it.
  void publish() &&;
  /// Readable once `writer` gets here.
  void publish(Stream& writer) &&;

 private:
  friend class BatchRing;
  WriteLease(BatchRing& ring, std::size_t slot) : ring_(&ring), slot_(slot) {}
  BatchRing* ring_ = nullptr;
  std::size_t slot_ = 0;
};

/// The right to read one slot. Destroyed: the slot is free again, at once.
class ReadLease {
 public:
  ReadLease() = default;
  ReadLease(ReadLease&& other) noexcept;
  ReadLease& operator=(ReadLease&& other) noexcept;
  ~ReadLease();

  /// False: end of data, or a stop was requested.
  explicit operator bool() const noexcept { return ring_ != nullptr; }
  const Batch& batch() const noexcept;

  /// The calling thread waits until the slot has been written.
  void await();
  /// Work enqueued on `reader` from here on waits until the slot has been written.
  void await(Stream& reader);

  /// Reached once the slot has been written; null: it is. Stays that of this batch until the next
  /// one in the same slot has been released.
  const Event* written() const noexcept;

  /// The slot may be handed out now, and overwritten once `reader` gets here.
  void release(Stream& reader) &&;

 private:
  friend class BatchRing;
  ReadLease(BatchRing& ring, std::size_t slot, std::size_t reader)
      : ring_(&ring), slot_(slot), reader_(reader) {}
  BatchRing* ring_ = nullptr;
  std::size_t slot_ = 0, reader_ = 0;
};

/// strict: batch k goes to reader k mod R. relaxed: to the reader that has asked for longest.
enum class Order : std::uint8_t { strict, relaxed };

struct RingStats {
  std::uint64_t published = 0;     ///< batches since construction
  std::uint64_t filled_slots = 0;  ///< published and not yet taken by a reader
  // While it was watched, up to where that stopped, or else to the last change:
  Nanoseconds watched{};
  Nanoseconds filled_time{};    ///< filled slots, integrated over time
  Nanoseconds empty_time{};     ///< no slot was filled
  Nanoseconds full_time{};      ///< no slot was free
  Nanoseconds producer_wait{};  ///< summed over threads in acquire: back-pressure
  Nanoseconds consumer_wait{};  ///< summed over threads in next: starvation
};

class BatchRing {
 public:
  /// `memory` owns the slots; `readers` are the devices that read them, one per reader, and make
  /// the events that say when a reader is done. All of them, and the clock, outlive the ring.
  BatchRing(const BatchSpec& spec, std::size_t slots, Device& memory, MemoryKind kind,
            std::span<Device* const> readers, Order order, Clock& clock);
  BatchRing(const BatchRing&) = delete;
  BatchRing& operator=(const BatchRing&) = delete;
  /// Ends what loans there are, once the devices are done with them.
  ~BatchRing();

  /// Its readers take pixels wherever they lie, and write to none. Before any thread uses the ring.
  void take_loans() noexcept { takes_loans_ = true; }
  bool takes_loans() const noexcept { return takes_loans_; }

  const BatchSpec& spec() const noexcept { return spec_; }
  std::size_t slots() const noexcept { return slots_.size(); }
  std::size_t readers() const noexcept { return reader_count_; }
  /// Of one slot: pixels, then labels. Theirs who hold its lease; others may ask where it lies.
  std::span<std::byte> memory(std::size_t slot) const noexcept {
    return slots_[slot].memory.bytes();
  }

  /// Blocks while no slot is free. Empty lease: stopped, closed or failed.
  [[nodiscard]] WriteLease acquire(std::stop_token stop);
  /// The same for a thread that has more to do than to wait: calls `meanwhile`, without a lock, as
  /// long as no slot is free. It returns now and then, and soon after a slot came free, which the
  /// lender of what was in it heard.
  [[nodiscard]] WriteLease acquire(std::stop_token stop, const std::function<void()>& meanwhile);
  /// Blocks while nothing is published for this reader. Empty lease: end of data, or stopped.
  /// Rethrows what fail() was given, once the batches published before it are read.
  [[nodiscard]] ReadLease next(std::size_t reader, std::stop_token stop);

  /// No more batches will come; those published are still delivered.
  void close() noexcept;
  /// The same, with a reason that every reader rethrows. The first failure wins.
  void fail(std::exception_ptr reason) noexcept;

  RingStats stats() const;

  /// Goes on watching; the first call begins. With `afresh` what was seen before is forgotten.
  void watch(bool afresh);
  void stop_watching();
  /// Mean filled slots in so many equal parts of the time in which it was watched.
  std::vector<double> filled_over_time(std::size_t parts) const;

  /// While `log` is open, every change of the filled slots goes there, under the number `ring`.
  /// Before any thread uses the ring; the log outlives it.
  void log_depths(DepthLog& log, std::int32_t ring);
  /// Puts the filled slots as they are now there too. Needs log_depths.
  void log_depth();

 private:
  friend class WriteLease;
  friend class ReadLease;

  struct Slot {
    Buffer memory;
    Batch batch;
    std::array<std::unique_ptr<Event>, 2> write_events;  // in turn, recorded by publish(Stream&)
    std::vector<std::unique_ptr<Event>> read;            // per reader, recorded by release(Stream&)
    Event* written = nullptr;          // of the batch in it; null: without a stream
    const Event* last_read = nullptr;  // what await() has to wait for, if anything
    std::shared_ptr<Lender> lender;    // of the last loan
    bool lent = false;                 // and it is not over
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
  WriteLease take_free(const std::stop_token& stop);
  void end_loan(Slot& slot, const Event* read) noexcept;
  void publish(std::size_t slot, Stream* writer);
  void give_back(std::size_t slot) noexcept;
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, Gate& gate, std::int64_t& waiting,
            const std::stop_token& stop, Ready ready);
  std::uint64_t filled_slots() const noexcept;
  void account() noexcept;
  void note_depth() noexcept;
  Fifo& queue_of(std::size_t reader) noexcept;
  std::size_t readers_ahead_of(std::size_t reader) const noexcept;

  const BatchSpec spec_;
  const std::size_t reader_count_;
  const Order order_;
  Clock& clock_;
  bool takes_loans_ = false;
  std::vector<Slot> slots_;

  mutable std::mutex mutex_;
  // All below under mutex_.
  Gate free_gate_, filled_gate_;
  Fifo free_;
  std::vector<Fifo> filled_;          // one per reader if strict, else one
  std::vector<std::uint64_t> asked_;  // per reader: the number of what it asks now; 0: nothing
  std::uint64_t asks_ = 0;
  std::uint64_t published_ = 0;
  std::int64_t waiting_producers_ = 0, waiting_readers_ = 0;
  bool watching_ = false;
  Time accounted_{};  // the sums hold what was until then
  RingStats sums_{};
  LevelHistory history_;
  DepthLog* depths_ = nullptr;
  std::int32_t number_ = 0;  // in that log
  bool closed_ = false;
  std::exception_ptr failure_;
};

}  // namespace penstock
