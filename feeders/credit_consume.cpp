// SPDX-License-Identifier: Apache-2.0
#include "feeders/credit_consume.h"

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
#include "feeders/credit_desk.h"
#include "feeders/lent_slots.h"
#include "feeders/producer_process.h"

namespace penstock {
namespace {

constexpr std::int64_t kMostCredit = 1 << 16, kMostProducers = 1 << 16;
/// Room in the socket, beyond credits, for a hello and an end.
constexpr std::int64_t kOtherMessages = 4;
/// A pool of so many batches is taken for one.
constexpr std::uint64_t kPoolBatches = 256;
/// What a producer that has ended left in the kernel's buffers arrives within this time.
constexpr Nanoseconds kFlush = std::chrono::seconds(1);
/// Between two looks at whether a device has read what it was lent.
constexpr Nanoseconds kReadBeat = std::chrono::milliseconds(1);

CreditPlan read_plan(const FeederContext& context) {
  const Options& options = context.options;
  const auto count = [&](const char* name, std::int64_t most) -> std::int64_t {
    return checked_count(std::string("zmq-consume:") + name, options.integer(name), most);
  };
  CreditPlan plan;
  plan.credit = count("credit", kMostCredit);
  plan.producers = count("max_producers", kMostProducers);
  plan.together = options.text("credit_together") == "auto" ? plan.credit * plan.producers
                                                            : count("credit_together", INT_MAX);
  plan.max_pool = options.text("max_pool") == "auto" ? kPoolBatches * context.spec.bytes()
                                                     : options.bytes("max_pool");
  plan.shared_only = options.flag("shared_memory");
  if (!options.flag("copy")) plan.reader = &context.device;
  plan.slots = static_cast<std::size_t>(context.slots);
  plan.on_bad_sample = context.on_bad_sample;
  return plan;
}

ZmqSocketOptions socket_options(ZmqSocketOptions socket, const CreditPlan& plan) {
  socket.role = ZmqSocketOptions::Role::router;
  // What a producer may send fits, so that libzmq never stops reading from it.
  socket.hwm = plan.credit + kOtherMessages;
  return socket;
}

class CreditConsume final : public Feeder {
 public:
  CreditConsume(const FeederContext& context, const ZmqSocketOptions& socket)
      : spec_(context.spec),
        clock_(context.clock),
        probe_(context.probe),
        marks_(context.marks),
        timeout_(context.timeout),
        plan_(read_plan(context)),
        endpoint_(parse_endpoint(context.options.text("endpoint"))),
        binds_(socket.bind),
        desk_(plan_, spec_, endpoint_, socket_options(socket, plan_), probe_,
              {.refused = [&counter = probe_.counter("peers_refused")] { counter.add(); },
               .say = [this](const std::string& text) { probe_.note("zmq-consume " + text); }}),
        images_(probe_.counter("images_received")),
        copied_(probe_.counter("bytes_copied")),
        lent_(probe_.counter("bytes_lent")),
        receiving_(probe_.stage({"receive", "receiver"}), clock_),
        unpacking_(probe_.stage({"unpack", "receiver"}), clock_),
        labels_(static_cast<std::size_t>(spec_.images)) {
    probe_.counter("receive_bound_bytes").add((plan_.together + 2) * socket.max_message);
    if (desk_.socket().address() != endpoint_.text) {
      probe_.note("zmq-consume listens at " + desk_.socket().address());
    }
    const std::string& command = context.options.text("producer");
    if (!command.empty()) producer_.emplace(command);
  }

  void run(BatchRing& out, std::stop_token stop) override {
    takes_loans_ = out.takes_loans();
    loans_.resize(out.slots());
    const auto slots = std::make_shared<LentSlots>(out.slots(), clock_);
    slots_ = slots;
    const std::stop_callback wake(stop, [&slots] { slots->wake(); });
    const auto slot = [&] {
      const auto wait = unpacking_.wait_out();
      return out.acquire(stop, [this] { await_slot(); });
    };
    while (WriteLease lease = slot()) {
      if (!fill(lease, stop)) return;
      std::move(lease).publish();
      images_.add(spec_.images);
    }
  }

 private:
  /// The next good batch, into a slot; false: stopped, or the producer has ended.
  bool fill(WriteLease& lease, const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    const Time deadline = clock_.now() + timeout_;
    StageTimer::Item item(receiving_);
    while (true) {
      const std::optional<CreditDesk::Arrival> arrival = receive(deadline, item, stop);
      if (!arrival) return false;
      try {
        take(*arrival, lease, item);
        desk_.look();
        return true;
      } catch (const DataError& error) {
        desk_.refuse(*arrival, error.what());
        desk_.look();
        if (clock_.now() >= deadline) throw TimeoutError(silence());
      }
    }
  }

  /// Lends it to the slot's readers where it lies, or copies it. Whoever shares memory with us may
  /// change it meanwhile: pixels may be anything, but labels are checked as copied.
  void take(const CreditDesk::Arrival& arrival, WriteLease& lease, StageTimer::Item& item) {
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
    item.done(spec_.images, static_cast<std::int64_t>(batch.pixels.size() + batch.labels.size()));
    {
      const auto wait = unpacking_.wait_out();
      lease.await();
    }
    end_loans();  // that of this slot among them
    if (takes_loans_ && arrival.is_lendable()) {
      lend(arrival, batch, lease);
    } else {
      copy(arrival, batch, lease);
    }
  }

  void lend(const CreditDesk::Arrival& arrival, const WireBatch& batch, WriteLease& lease) {
    const Mark mark(marks_, "lend");
    StageTimer::Item lending(unpacking_);
    const Batch& slot = lease.batch();
    copy_labels(batch, slot);
    const auto number = static_cast<std::size_t>(slot.slot);
    slots_->keep(slot.slot, arrival.pool);
    lease.lend(batch.pixels, slots_);
    loans_[number] = desk_.lend(arrival);
    lent_.add(static_cast<std::int64_t>(batch.pixels.size()));
    copied_.add(static_cast<std::int64_t>(batch.labels.size()));
    lending.done(spec_.images, static_cast<std::int64_t>(batch.labels.size()));
    note_way(said_lent_, "are lent to the device where they lie: this process copies none");
  }

  void copy(const CreditDesk::Arrival& arrival, const WireBatch& batch, WriteLease& lease) {
    const Mark mark(marks_, "copy out of the message");
    StageTimer::Item copying(unpacking_);
    copy_batch(batch, lease.batch());
    lease.lend(lease.batch().pixels, slots_);
    desk_.finish(arrival);
    copied_.add(static_cast<std::int64_t>(spec_.bytes()));
    copying.done(spec_.images, static_cast<std::int64_t>(spec_.bytes()));
    if (arrival.pool == nullptr) return;
    note_way(said_copied_,
             plan_.reader == nullptr ? "are copied into slots, as copy=true says"
             : !takes_loans_         ? "are copied into slots, whose readers need their own memory"
             : arrival.pool->pin == nullptr
                 ? "are copied into slots, as the device cannot read memory of other processes"
                 : "are copied into slots once their producer has gone");
  }

  /// Says once how batches in shared memory come to their readers.
  void note_way(bool& said, const char* how) {
    if (!std::exchange(said, true)) {
      probe_.note(std::string("zmq-consume: batches in shared memory ") + how);
    }
  }

  /// Gives leases back of slots whose readers are done.
  LentSlots::News end_loans() {
    return slots_->collect([this](std::int32_t slot) {
      std::optional<CreditDesk::Loan>& loan = loans_[static_cast<std::size_t>(slot)];
      if (loan) desk_.end_loan(*std::exchange(loan, std::nullopt));
    });
  }

  /// While no slot is free, until one may be; producers are served meanwhile.
  void await_slot() {
    const LentSlots::News news = end_loans();
    if (news.any) return;
    desk_.look();
    slots_->wait(news.pending ? kReadBeat : CreditDesk::kBeat);
  }

  /// Empty: stopped, or the producer has ended.
  std::optional<CreditDesk::Arrival> receive(Time deadline, StageTimer::Item& item,
                                             const std::stop_token& stop) {
    while (true) {
      std::optional<CreditDesk::Arrival> arrival = desk_.next(stop);
      if (stop.stop_requested()) return std::nullopt;
      if (arrival) return arrival;
      const LentSlots::News news = end_loans();
      desk_.look();
      const bool ended = producer_ended();
      if (ended && !ended_at_) ended_at_ = clock_.now();
      if (ended && clock_.now() - *ended_at_ >= kFlush && !producer_->group_lives()) {
        check_end_of_producer();
        return std::nullopt;
      }
      if (clock_.now() >= deadline) throw TimeoutError(silence());
      const Nanoseconds limit =
          std::min(deadline - clock_.now(), news.pending ? kReadBeat : CreditDesk::kBeat);
      const auto waiting = receiving_.wait_in();
      desk_.socket().wait(limit, stop, slots_->fd(), producer_ && !ended ? producer_->fd() : -1);
      item.restart();
    }
  }

  /// Whether our own producer has ended, as it may; throws when it failed.
  bool producer_ended() {
    const std::optional<int> status = producer_ ? producer_->status() : std::nullopt;
    if (status.value_or(0) == 0) return status.has_value();
    throw DataError("producer '" + producer_->command() + "' " + producer_->describe_end() +
                    " while batches were still wanted; run it by itself to see why");
  }

  /// The producer went in peace and all it sent is here.
  void check_end_of_producer() const {
    if (images_.value() > 0) return;
    throw DataError("producer '" + producer_->command() + "' " + producer_->describe_end() +
                    " and sent no batch that could be used; " + desk_.silence());
  }

  /// What is known when nothing usable came in time.
  std::string silence() {
    const ZmqSocket::Peers peers = desk_.socket().peers();
    std::string text = "no batch came over " + describe(endpoint_) + " within " +
                       seconds_text(timeout_) + " (this side " + (binds_ ? "binds" : "connects") +
                       "); ";
    if (peers.refused > 0) {
      text += std::to_string(peers.refused) +
              " tries to come in were refused, see the notes about keys; ";
    }
    text += peers.joined == 0 ? "no producer ever connected" : desk_.silence();
    return text + "; start one, such as `penstock serve --credit --endpoint " + endpoint_.text +
           " --batch-size " + std::to_string(spec_.images) + (binds_ ? "" : " --bind") +
           "`, or wait longer with --timeout";
  }

  const BatchSpec spec_;
  Clock& clock_;
  Probe& probe_;
  const Marks marks_;
  const Nanoseconds timeout_;
  const CreditPlan plan_;
  const Endpoint endpoint_;
  const bool binds_;
  CreditDesk desk_;
  Counter &images_, &copied_, &lent_;
  StageTimer receiving_, unpacking_;
  std::vector<std::int32_t> labels_;  // of a batch in shared memory
  bool takes_loans_ = false;          // the ring that is filled
  bool said_lent_ = false, said_copied_ = false;
  std::shared_ptr<LentSlots> slots_;                    // of that ring, which keeps it too
  std::vector<std::optional<CreditDesk::Loan>> loans_;  // by slot
  std::optional<ProducerProcess> producer_;             // ends before the socket does
  std::optional<Time> ended_at_;                        // when that was seen
};

}  // namespace

std::unique_ptr<Feeder> make_credit_consume(const FeederContext& context, ZmqSocketOptions socket) {
  return std::make_unique<CreditConsume>(context, socket);
}

std::int64_t credit_reserve(const Options& options) {
  return checked_count("zmq-consume:credit", options.integer("credit"), kMostCredit) +
         checked_count("zmq-consume:hwm", options.integer("hwm"), INT_MAX) + 2;
}

}  // namespace penstock
