// SPDX-License-Identifier: Apache-2.0
// Batches from outside producers, in any language, over ZeroMQ: PULL sockets, messages of the
// formats of batch_message.h, one copy from libzmq's memory into the slot.
//
// What waits in a socket is bounded in messages (hwm, per producer) and, as no message may be
// larger than max_message, in bytes. libzmq does not count the frames of an unfinished multi-frame
// message, so this bound does not hold against a producer that means harm: it only binds where this
// machine's users can reach it, unless told otherwise.
#include <atomic>
#include <climits>
#include <optional>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "dataflow/wire/batch_message.h"
#include "feeders/feeder.h"
#include "feeders/zmq_consume_encoded.h"
#include "feeders/zmq_consume_plan.h"
#include "feeders/zmq_intake.h"

namespace penstock {
namespace {

class ZmqConsume final : public Feeder {
 public:
  explicit ZmqConsume(const FeederContext& context)
      : spec_(context.spec),
        clock_(context.clock),
        probe_(context.probe),
        marks_(context.marks),
        plan_(read_consume_plan(context.options, context.spec)),
        intake_(context, plan_),
        images_(probe_.counter("images_received")),
        receiving_(probe_.stage({"receive", "receiver", plan_.receivers})),
        unpacking_(probe_.stage({"unpack", "receiver", plan_.receivers})) {
    probe_.counter("receive_bound_bytes").add(plan_.most_messages() * plan_.socket.max_message);
  }

  void run(BatchRing& out, std::stop_token stop) override {
    Receiver receiver(*this);
    receive_batches(receiver, out, stop);
    if (stop.stop_requested()) intake_.note_silent_endpoints();
  }

 private:
  /// What one thread has.
  struct Receiver {
    explicit Receiver(const ZmqConsume& feeder)
        : receiving(feeder.receiving_, feeder.clock_),
          unpacking(feeder.unpacking_, feeder.clock_),
          reader(feeder.spec_) {}
    StageTimer receiving, unpacking;
    BatchMessageReader reader;
    ZmqMessage message;
  };

  void receive_batches(Receiver& receiver, BatchRing& out, const std::stop_token& stop) {
    const auto slot = [&] {
      const auto wait = receiver.unpacking.wait_out();
      return out.acquire(stop);
    };
    while (WriteLease lease = slot()) {
      const std::optional<WireBatch> batch = receive_batch(receiver, stop);
      if (!batch) return;
      {
        const auto wait = receiver.unpacking.wait_out();
        lease.await();
      }
      copy(receiver, *batch, lease.batch());
      receiver.message.clear();
      std::move(lease).publish();
      images_.add(spec_.images);
    }
  }

  /// The next good batch, in the receiver's message; empty: stopped, or the producer has ended.
  std::optional<WireBatch> receive_batch(Receiver& receiver, const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    const Time since = clock_.now();
    StageTimer::Item item(receiver.receiving);
    while (intake_.receive(receiver.message, since, receiver.receiving, item, stop)) {
      try {
        const WireBatch batch = read(receiver);
        intake_.accept(receiver.message);
        item.done(spec_.images, receiver.message.bytes());
        return batch;
      } catch (const DataError& error) {
        intake_.reject(receiver.message, error.what());
      }
    }
    return std::nullopt;
  }

  /// What the receiver's message holds, as views. Throws DataError where it is no batch.
  WireBatch read(Receiver& receiver) {
    const MessageFrames frames = receiver.message.frames();
    const MessageFormat format = plan_.format.value_or(detect_message_format(frames));
    if (format == MessageFormat::framed) refuse_image_files(frames);
    const WireBatch batch = receiver.reader.read(format, frames);
    note_format(format);
    return batch;
  }

  void copy(Receiver& receiver, const WireBatch& batch, Batch& slot) {
    const Mark mark(marks_, "copy out of the message");
    StageTimer::Item item(receiver.unpacking);
    copy_batch(batch, slot);
    item.done(spec_.images, static_cast<std::int64_t>(spec_.bytes()));
  }

  /// Says once which formats came, where nobody declared one.
  void note_format(MessageFormat format) {
    const auto bit = 1U << static_cast<unsigned>(format);
    if (plan_.format || (seen_formats_.load(std::memory_order_relaxed) & bit) != 0) return;
    if ((seen_formats_.fetch_or(bit) & bit) != 0 || format == MessageFormat::zmq_op) return;
    probe_.note("zmq-consume reads messages of the format " + std::string(to_string(format)));
  }

  const BatchSpec spec_;
  Clock& clock_;
  Probe& probe_;
  const Marks marks_;
  const ConsumePlan plan_;
  ZmqIntake intake_;
  Counter& images_;
  StageCounters &receiving_, &unpacking_;
  std::atomic<unsigned> seen_formats_{0};  // a bit each
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  if (wants_image_files(context.options)) return make_encoded_consumer(context);
  return std::make_unique<ZmqConsume>(context);
}

/// A full socket on either side, one message under way and one being received, at each endpoint.
/// The producer's hwm is taken to be ours.
std::int64_t outside_reserve(const Options& options) {
  const std::size_t endpoints =
      parse_endpoints(options.text("endpoint"), options.flag("bind")).size();
  const std::int64_t hwm = checked_count("zmq-consume:hwm", options.integer("hwm"), INT_MAX);
  return static_cast<std::int64_t>(endpoints) * (2 * hwm + 2);
}

}  // namespace

extern constinit const FeederEntry zmq_consume_feeder{
    .name = "zmq-consume",
    .summary = "batches from outside producers over ZeroMQ, and the copy",
    .needs_producer = true,
    .options = kAllConsumeOptions,
    .shape_batches = shape_consumed_batches,
    .make = make,
    .outside_reserve = outside_reserve,
};

}  // namespace penstock
