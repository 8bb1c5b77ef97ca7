// SPDX-License-Identifier: Apache-2.0
#include "feeders/credit_consume.h"

#include <array>
#include <climits>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "feeders/credit_intake.h"

namespace penstock {
namespace {

class CreditConsume final : public Feeder {
 public:
  CreditConsume(const FeederContext& context, const ZmqSocketOptions& socket)
      : spec_(context.spec),
        clock_(context.clock),
        probe_(context.probe),
        marks_(context.marks),
        timeout_(context.timeout),
        intake_(context, socket, FramedEncoding::pixels),
        desk_(intake_.desk()),
        images_(probe_.counter("images_received")),
        receiving_(probe_.stage({"receive", "receiver"}), clock_),
        unpacked_(probe_.stage({"unpack", "receiver"})),
        unpacking_(unpacked_, clock_),
        labels_(static_cast<std::size_t>(spec_.images)) {}

  void run(BatchRing& out, std::stop_token stop) override {
    const auto slot = [&] {
      const auto wait = unpacking_.wait_out();
      return out.acquire(stop);
    };
    while (WriteLease lease = slot()) {
      if (!fill(lease, stop)) break;
      std::move(lease).publish();
      images_.add(spec_.images);
    }
    desk_.summarise(copy_seconds());
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
        desk_.finish(*arrival);
        desk_.look();
        return true;
      } catch (const DataError& error) {
        desk_.refuse(*arrival, error.what());
        if (clock_.now() >= deadline) throw TimeoutError(intake_.silence());
      }
    }
  }

  /// Copies it. Whoever shares memory with us may change it meanwhile: pixels may be anything, but
  /// labels are checked as copied.
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
    desk_.accept(arrival);
    item.done(spec_.images, static_cast<std::int64_t>(batch.pixels.size() + batch.labels.size()));
    {
      const auto wait = unpacking_.wait_out();
      lease.await();
    }
    const Mark mark(marks_, "copy out of the message");
    StageTimer::Item copying(unpacking_);
    copy_batch(batch, lease.batch());
    copying.done(spec_.images, static_cast<std::int64_t>(spec_.bytes()));
  }

  /// Of one batch, on average; 0: not timed.
  double copy_seconds() const {
    const std::int64_t items = unpacked_.timed_items.value();
    if (items == 0) return 0;
    return 1e-9 * static_cast<double>(unpacked_.wall_ns.value()) / static_cast<double>(items);
  }

  /// Empty: stopped, or the producer has ended.
  std::optional<CreditDesk::Arrival> receive(Time deadline, StageTimer::Item& item,
                                             const std::stop_token& stop) {
    while (true) {
      std::optional<CreditDesk::Arrival> arrival = desk_.next(stop);
      desk_.look();
      if (stop.stop_requested()) return std::nullopt;
      if (arrival) return arrival;
      const auto waiting = receiving_.wait_in();
      if (!intake_.await(deadline, stop)) return std::nullopt;
      item.restart();
    }
  }

  const BatchSpec spec_;
  Clock& clock_;
  Probe& probe_;
  const Marks marks_;
  const Nanoseconds timeout_;
  CreditIntake intake_;
  CreditDesk& desk_;
  Counter& images_;
  StageTimer receiving_;
  StageCounters& unpacked_;
  StageTimer unpacking_;
  std::vector<std::int32_t> labels_;  // of a batch in shared memory
};

}  // namespace

std::unique_ptr<Feeder> make_credit_consume(const FeederContext& context, ZmqSocketOptions socket) {
  return std::make_unique<CreditConsume>(context, socket);
}

std::int64_t credit_reserve(const Options& options) {
  return checked_count("zmq-consume:credit", options.integer("credit"), CreditIntake::kMostCredit) +
         checked_count("zmq-consume:hwm", options.integer("hwm"), INT_MAX) + 2;
}

}  // namespace penstock
