// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/credit/credit_consume.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "feeders/remote/credit/credit_intake.h"
#include "feeders/remote/receive/lent_slots.h"

namespace penstock::remote {
namespace {

/// Time between two checks whether a device has finished reading a loan.
constexpr Nanoseconds kReadBeat = std::chrono::milliseconds(1);

class CreditConsume final : public Feeder {
 public:
  CreditConsume(const FeederContext& context, const ZmqSocketOptions& socket)
      : spec_(context.spec),
        clock_(context.clock),
        probe_(context.probe),
        marks_(context.marks),
        timeout_(context.timeout),
        copies_(context.options.flag("copy")),
        intake_(context, socket, FramedEncoding::pixels),
        consumer_(intake_.consumer()),
        images_(probe_.counter("images_received")),
        copied_(probe_.counter("bytes_copied")),
        lent_(probe_.counter("bytes_lent")),
        receiving_(probe_.stage({"receive", "receiver"}), clock_),
        unpacked_(probe_.stage({"unpack", "receiver"})),
        unpacking_(unpacked_, clock_),
        labels_(static_cast<std::size_t>(spec_.images)) {}

  void run(BatchRing& out, std::stop_token stop) override {
    accepts_foreign_ = out.accepts_foreign();
    loans_.resize(out.slots());
    const auto slots = std::make_shared<LentSlots>(out.slots(), clock_);
    slots_ = slots;
    const std::stop_callback wake(stop, [&slots] { slots->wake(); });
    const auto slot = [&] {
      const auto wait = unpacking_.wait_out();
      return out.acquire(stop, [this] { await_slot(); });
    };
    bool is_over = false;
    while (WriteLease lease = slot()) {
      is_over = !fill(lease, stop);
      if (is_over) break;
      std::move(lease).publish();
      images_.add(spec_.images);
    }
    if (is_over) await_readers(out, stop);
    consumer_.summarise(copy_seconds());
  }

 private:
  /// Receives the next good batch into a slot; false: stopped, or the producer has ended.
  bool fill(WriteLease& lease, const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    const Time deadline = clock_.now() + timeout_;
    StageTimer::Item item(receiving_);
    while (true) {
      const std::optional<CreditConsumer::Arrival> arrival = receive(deadline, item, stop);
      if (!arrival) return false;
      try {
        take(*arrival, lease, item);
        consumer_.look();
        return true;
      } catch (const DataError& error) {
        consumer_.refuse(*arrival, error.what());
        consumer_.look();
        if (clock_.now() >= deadline) throw TimeoutError(intake_.silence());
      }
    }
  }

  /// Lends the batch to the slot's readers without a copy, or copies it. The producer may change
  /// shared memory at any time. Pixels may have any value, but labels are checked in our copy.
  void take(const CreditConsumer::Arrival& arrival, WriteLease& lease, StageTimer::Item& item) {
    FramedMessage message = arrival.message;
    FramedShared divided;
    std::array<std::span<const std::byte>, 2> frames;
    if (message.is_shared()) {
      divided = divide_framed_lease(message.header, arrival.shared);
      PENSTOCK_ASSERT(divided.count == 2);
      const std::span<std::byte> copied = std::as_writable_bytes(std::span(labels_));
      PENSTOCK_ASSERT(divided.frames[1].size() == copied.size());
      std::memcpy(copied.data(), divided.frames[1].data(), copied.size());
      frames = {divided.frames[0], copied};
      message.payload = frames;
    }
    const WireBatch batch = framed_pixels(message, spec_);
    consumer_.accept(arrival);
    item.done(spec_.images, static_cast<std::int64_t>(batch.pixels.size() + batch.labels.size()));
    {
      const auto wait = unpacking_.wait_out();
      lease.await();
    }
    end_loans();  // also the loan of this slot
    if (accepts_foreign_ && arrival.is_lendable()) {
      lend(arrival, batch, lease);
    } else {
      copy(arrival, batch, lease);
    }
  }

  void lend(const CreditConsumer::Arrival& arrival, const WireBatch& batch, WriteLease& lease) {
    const Mark mark(marks_, "lend");
    StageTimer::Item lending(unpacking_);
    const Batch& slot = lease.batch();
    copy_labels(batch, slot);
    const auto number = static_cast<std::size_t>(slot.slot);
    slots_->keep(slot.slot, arrival.pool);
    lease.lend(batch.pixels, slots_);
    loans_[number] = consumer_.lend(arrival);
    lent_.add(static_cast<std::int64_t>(batch.pixels.size()));
    copied_.add(static_cast<std::int64_t>(batch.labels.size()));
    lending.done(spec_.images, static_cast<std::int64_t>(batch.labels.size()));
    note_way(said_lent_, "are lent to the device in place: this process copies none");
  }

  void copy(const CreditConsumer::Arrival& arrival, const WireBatch& batch, WriteLease& lease) {
    const Mark mark(marks_, "copy out of the message");
    StageTimer::Item copying(unpacking_);
    copy_batch(batch, lease.batch());
    lease.lend(lease.batch().pixels, slots_);
    consumer_.finish(arrival);
    copied_.add(static_cast<std::int64_t>(spec_.bytes()));
    copying.done(spec_.images, static_cast<std::int64_t>(spec_.bytes()));
    if (arrival.pool == nullptr) return;
    note_way(said_copied_,
             copies_ ? "are copied into slots, because of copy=true"
             : !accepts_foreign_
                 ? "are copied into slots, because the readers of the slots need their own memory"
             : arrival.pool->pin == nullptr
                 ? "are copied into slots, because the device cannot read memory of other processes"
                 : "are copied into slots, because their producer has disconnected");
  }

  /// Notes once how readers get batches from shared memory.
  void note_way(bool& said, const char* how) {
    if (!std::exchange(said, true)) {
      probe_.note(std::string("zmq-consume: batches in shared memory ") + how);
    }
  }

  /// Returns the leases of slots whose readers are done.
  LentSlots::News end_loans() {
    return slots_->collect([this](std::int32_t slot) {
      std::optional<CreditConsumer::Loan>& loan = loans_[static_cast<std::size_t>(slot)];
      if (loan) consumer_.end_loan(*std::exchange(loan, std::nullopt));
    });
  }

  /// Waits until a slot may be free, and serves producers meanwhile.
  void await_slot() {
    const LentSlots::News news = end_loans();
    if (news.any) return;
    consumer_.look();
    slots_->wait(news.pending ? kReadBeat : CreditConsumer::kBeat);
  }

  /// Call when the data have ended: readers get no more batches, and producers wait for their
  /// leases.
  void await_readers(BatchRing& out, const std::stop_token& stop) {
    out.close();
    const auto is_lent = [](const auto& loan) { return loan.has_value(); };
    while (!stop.stop_requested() && std::any_of(loans_.begin(), loans_.end(), is_lent)) {
      await_slot();
    }
    consumer_.look();
  }

  /// Average time to copy one batch; 0: not timed.
  double copy_seconds() const {
    const std::int64_t items = unpacked_.timed_items.value();
    if (items == 0) return 0;
    return 1e-9 * static_cast<double>(unpacked_.wall_ns.value()) / static_cast<double>(items);
  }

  /// Empty: stopped, or the producer has ended.
  std::optional<CreditConsumer::Arrival> receive(Time deadline, StageTimer::Item& item,
                                                 const std::stop_token& stop) {
    while (true) {
      std::optional<CreditConsumer::Arrival> arrival = consumer_.next(stop);
      if (stop.stop_requested()) return std::nullopt;
      if (arrival) return arrival;
      const LentSlots::News news = end_loans();
      consumer_.look();
      const auto waiting = receiving_.wait_in();
      const Nanoseconds limit = news.pending ? kReadBeat : CreditConsumer::kBeat;
      if (!intake_.await(deadline, stop, slots_->fd(), limit)) return std::nullopt;
      item.restart();
    }
  }

  const BatchSpec spec_;
  Clock& clock_;
  Probe& probe_;
  const Marks marks_;
  const Nanoseconds timeout_;
  const bool copies_;  // option copy=true: every batch
  CreditIntake intake_;
  CreditConsumer& consumer_;
  Counter &images_, &copied_, &lent_;
  StageTimer receiving_;
  StageCounters& unpacked_;
  StageTimer unpacking_;
  std::vector<std::int32_t> labels_;  // of a batch in shared memory
  bool accepts_foreign_ = false;      // whether the ring accepts them
  bool said_lent_ = false, said_copied_ = false;
  std::shared_ptr<LentSlots> slots_;                        // of the ring, which owns it too
  std::vector<std::optional<CreditConsumer::Loan>> loans_;  // by slot
};

}  // namespace

std::unique_ptr<Feeder> make_credit_consume(const FeederContext& context, ZmqSocketOptions socket) {
  return std::make_unique<CreditConsume>(context, socket);
}

std::vector<MemoryNeed> credit_memory_needs(const Options& options, const BatchSpec& spec) {
  if (options.flag("shared_memory")) return {};  // shared memory belongs to producers
  const auto credit = static_cast<double>(
      checked_count("zmq-consume:credit", options.integer("credit"), CreditIntake::kMostCredit));
  const auto producers =
      static_cast<double>(std::max<std::int64_t>(options.integer("producers"), 1));
  double batches = credit * producers;
  if (options.given("credit_together")) {
    batches = std::min(batches, static_cast<double>(options.integer("credit_together")));
  }
  return {{"batches under way",
           batches * static_cast<double>(spec.bytes()),
           {{"--batch-size", static_cast<double>(spec.images)}, {"zmq-consume:credit", credit}}}};
}

std::int64_t credit_reserve(const Options& options) {
  return checked_count("zmq-consume:credit", options.integer("credit"), CreditIntake::kMostCredit) +
         checked_count("zmq-consume:hwm", options.integer("hwm"), INT_MAX) + 2;
}

}  // namespace penstock::remote
