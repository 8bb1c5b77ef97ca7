// SPDX-License-Identifier: Apache-2.0
// The feeder `zmq-consume`: receives batches from outside producers, in any language, over ZeroMQ.
// Messages have the formats of batch_message.h. Each batch of pixels is copied once, from libzmq's
// memory into the slot, or lent to the slot's readers without a copy. Image files are decoded
// (receive/message_images.h).
//
// The socket limits waiting data to hwm messages per producer. For messages of one frame that is
// also a limit in bytes, because max_message limits each message. libzmq counts a message of
// several frames once, when its last frame arrives. Against a malicious producer this limit holds
// only over TCP (README.md). Therefore a socket binds only where users of this machine can reach
// it, unless told otherwise.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "feeders/feeder.h"
#include "feeders/remote/receive/consume_plan.h"
#include "feeders/remote/receive/message_images.h"
#include "feeders/remote/receive/message_intake.h"
#include "feeders/remote/receive/receiver_threads.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/wire/batch_message.h"
#include "feeders/remote/wire/zmq_op.h"

namespace penstock::remote {
namespace {

class PixelConsumer final : public Feeder {
 public:
  PixelConsumer(const FeederContext& context, const ConsumePlan& plan)
      : spec_(context.spec),
        clock_(context.clock),
        probe_(context.probe),
        marks_(context.marks),
        format_(plan.format),
        receivers_(plan.receivers),
        by_credit_(plan.credit.has_value()),
        intake_(by_credit_ ? make_credit_intake(context, plan) : make_push_intake(context, plan)),
        images_(probe_.counter("images_received")),
        receiving_(probe_.stage({"receive", "receiver", receivers_, StageRole::receives})),
        unpacking_(probe_.stage({"unpack", "receiver", receivers_, StageRole::unpacks})) {}

  void settle() override {
    if (!by_credit_) intake_->framed().window_begins();
  }

  void run(BatchRing& out, std::stop_token stop) override {
    run_together(receivers_, stop, [&](const std::stop_token& end) {
      Receiver receiver(*this);
      receive_batches(receiver, out, end);
    });
    intake_->end(copy_seconds());
  }

 private:
  /// The state of one receiver thread.
  struct Receiver {
    explicit Receiver(const PixelConsumer& feeder)
        : receiving(feeder.receiving_, feeder.clock_),
          unpacking(feeder.unpacking_, feeder.clock_),
          reader(feeder.spec_),
          labels(feeder.by_credit_ ? static_cast<std::size_t>(feeder.spec_.images) : 0) {}
    StageTimer receiving, unpacking;
    BatchMessageReader reader;
    Arrival arrival;
    std::vector<std::int32_t> labels;  // of a batch in shared memory
  };

  void receive_batches(Receiver& receiver, BatchRing& out, const std::stop_token& stop) {
    const std::function<void()> serve = [&] { intake_->serve(stop); };
    const auto slot = [&] {
      const auto wait = receiver.unpacking.wait_out();
      return by_credit_ ? out.acquire(stop, serve) : out.acquire(stop);
    };
    while (WriteLease lease = slot()) {
      const std::optional<WireBatch> batch = receive_batch(receiver, stop);
      if (!batch) {
        lease = {};
        if (intake_->has_loans()) await_readers(out, stop);
        return;
      }
      {
        const auto wait = receiver.unpacking.wait_out();
        lease.await();
      }
      fill(receiver, *batch, lease, out.accepts_foreign());
      Turn turn = std::move(receiver.arrival.turn);
      if (!turn.has_come()) {
        const auto wait = receiver.unpacking.wait_out();
        turn.await();
      }
      const std::int32_t images = samples_of(*batch);
      std::move(lease).publish();
      images_.add(images);
    }
  }

  std::int32_t samples_of(const WireBatch& batch) const noexcept {
    return batch.samples > 0 ? batch.samples : spec_.images;
  }

  /// Receives the next good batch into the receiver's message. Empty: stopped, or the producers
  /// have ended.
  std::optional<WireBatch> receive_batch(Receiver& receiver, const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    const Time since = clock_.now();
    StageTimer::Item item(receiver.receiving);
    Arrival& arrival = receiver.arrival;
    while (intake_->receive(arrival, since, receiver.receiving, item, stop)) {
      try {
        const WireBatch batch = read(receiver);
        intake_->accept(arrival);
        note_format(arrival.format);
        item.done(samples_of(batch),
                  by_credit_ ? static_cast<std::int64_t>(spec_.bytes()) : arrival.message.bytes());
        return batch;
      } catch (const MisfitError& error) {
        intake_->refuse(arrival, error.what(), true);
      } catch (const DataError& error) {
        intake_->refuse(arrival, error.what(), false);
      }
    }
    return std::nullopt;
  }

  /// Returns views of the batch in the receiver's message. Throws DataError if it is invalid.
  WireBatch read(Receiver& receiver) const {
    const Arrival& arrival = receiver.arrival;
    if (!arrival.framed) return receiver.reader.read(arrival.format, arrival.message.frames());
    if (arrival.framed->header.encoding == FramedEncoding::jpeg) {
      throw DataError(
          "a batch of image files; expected pixels; use zmq-consume:encoded=true, or start the "
          "producer without --encoded");
    }
    if (!arrival.framed->is_shared() || arrival.pool == nullptr) {
      return framed_pixels(*arrival.framed, spec_);
    }
    // The producer may change shared memory at any time. Pixels may have any value, but labels are
    // checked in our copy.
    std::array frames = divide_framed_lease(arrival.framed->header, arrival.shared);
    const std::span<std::byte> labels = std::as_writable_bytes(std::span(receiver.labels));
    PENSTOCK_ASSERT(frames[1].size() == labels.size());
    std::memcpy(labels.data(), frames[1].data(), labels.size());
    frames[1] = labels;
    return framed_pixels({arrival.framed->header, frames}, spec_);
  }

  /// Copies the batch into the slot, or lends it to the slot's readers.
  void fill(Receiver& receiver, const WireBatch& batch, WriteLease& lease, bool accepts_foreign) {
    Batch& slot = lease.batch();
    const std::int32_t images = samples_of(batch);
    StageTimer::Item item(receiver.unpacking);
    if (accepts_foreign && receiver.arrival.is_lendable) {
      const Mark mark(marks_, "lend");
      copy_labels(batch, slot);
      intake_->hold(receiver.arrival, slot.slot);
      lease.lend(batch.pixels, intake_->slots());
      item.done(images, static_cast<std::int64_t>(spec_.label_bytes()));
      return;
    }
    const Mark mark(marks_, "copy out of the message");
    copy_batch(batch, slot);
    item.done(images, static_cast<std::int64_t>(batch.pixels.size() + spec_.label_bytes()));
    intake_->release(receiver.arrival);
    if (!by_credit_) return;
    // The slot's return wakes this thread.
    intake_->slots()->keep(slot.slot, nullptr);
    lease.lend(slot.pixels, intake_->slots());
  }

  /// Call when the data have ended: readers get no more batches, and producers wait for their
  /// leases.
  void await_readers(BatchRing& out, const std::stop_token& stop) {
    out.close();
    while (!stop.stop_requested() && intake_->has_loans()) intake_->serve(stop);
  }

  /// Average time to copy one batch; 0: not timed.
  double copy_seconds() const {
    const std::int64_t items = unpacking_.timed_items.value();
    if (items == 0) return 0;
    return 1e-9 * static_cast<double>(unpacking_.wall_ns.value()) / static_cast<double>(items);
  }

  /// Notes each received format once, unless the format option is set.
  void note_format(MessageFormat format) {
    const auto bit = 1U << static_cast<unsigned>(format);
    if (by_credit_ || format_ || (seen_formats_.load(std::memory_order_relaxed) & bit) != 0) return;
    if ((seen_formats_.fetch_or(bit) & bit) != 0 || format == MessageFormat::zmq_op) return;
    probe_.note("messages have the format " + std::string(to_string(format)));
  }

  const BatchSpec spec_;
  Clock& clock_;
  Probe& probe_;
  const Marks marks_;
  const std::optional<MessageFormat> format_;
  const std::int32_t receivers_;
  const bool by_credit_;
  const std::unique_ptr<MessageIntake> intake_;
  Counter& images_;
  StageCounters &receiving_, &unpacking_;
  std::atomic<unsigned> seen_formats_{0};  // one bit per format
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  const BatchSpec& spec = context.spec;
  const ConsumePlan plan = read_consume_plan(context.options, spec);
  std::unique_ptr<Feeder> feeder = plan.image_files
                                       ? make_image_file_consumer(context, plan)
                                       : std::make_unique<PixelConsumer>(context, plan);
  if (plan.keep_memory) {
    keep_message_memory(plan.image_files ? spec.images * spec.image.elements()
                                         : BatchLayout(spec, spec.images).size());
  }
  context.probe.counter("receive_bound_bytes").add(plan.most_bytes());
  if (!plan.credit) context.probe.note(describe_waiting(plan, spec));
  return feeder;
}

void shape_batches(const Options& options, BatchSpec& batches) {
  if (options.flag("encoded")) return normalise_batches(options, batches);
  if (options.given("batch")) return shape_arrays(options.text("batch"), kBatchOption, batches);
  shape_pixels(options, batches);
}

std::int64_t outside_reserve(const Options& options, const BatchSpec& spec) {
  return read_consume_plan(options, spec).most_outside();
}

/// Covers messages of pixels only: the sizes of image files are not known before they arrive.
std::vector<MemoryNeed> memory_needs(const Options& options, const BatchSpec& spec) {
  if (options.flag("encoded")) return {};
  const ConsumePlan plan = read_consume_plan(options, spec);
  const auto producers = static_cast<double>(std::max(plan.producers, 1));
  const auto batch = static_cast<double>(spec.bytes());
  std::vector<MemoryNeed::Factor> factors{{"--batch-size", static_cast<double>(spec.images)}};
  if (plan.credit) {
    if (plan.credit->shared_only) return {};  // shared memory belongs to producers
    const auto credit = static_cast<double>(plan.credit->credit);
    factors.push_back({"zmq-consume:credit", credit});
    const auto together = options.given("credit_together")
                              ? static_cast<double>(plan.credit->together)
                              : credit * producers;
    return {
        {"batches under way", std::min(credit * producers, together) * batch, std::move(factors)}};
  }
  if (!options.given("buffer")) {
    factors.push_back({"zmq-consume:hwm", static_cast<double>(plan.socket.hwm)});
  }
  return {{"batches in sockets",
           static_cast<double>(plan.endpoints.size()) * producers *
               static_cast<double>(plan.most_messages()) * batch,
           std::move(factors)}};
}

}  // namespace

extern constinit const FeederEntry zmq_consume_feeder{
    .name = "zmq-consume",
    .summary = "batches from other programs over ZeroMQ",
    .takes_layout = true,
    .needs_producer = true,
    .options = kAllConsumeOptions,
    .shape_batches = shape_batches,
    .make = make,
    .unit = [](const Options& given) -> std::string_view {
      return given.given("batch") ? "samples" : "img";
    },
    .outside_reserve = outside_reserve,
    .memory_needs = memory_needs,
};

}  // namespace penstock::remote
