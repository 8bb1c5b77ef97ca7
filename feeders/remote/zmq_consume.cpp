// SPDX-License-Identifier: Apache-2.0
// The feeder `zmq-consume`: receives batches from outside producers, in any language, over ZeroMQ
// PULL sockets. Messages have the formats of batch_message.h. Each batch is copied once, from
// libzmq's memory into the slot.
//
// The socket limits waiting data to hwm messages per producer. For messages of one frame that is
// also a limit in bytes, because max_message limits each message. libzmq counts a message of
// several frames once, when its last frame arrives. Against a malicious producer this limit holds
// only over TCP (README.md). Therefore a socket binds only where users of this machine can reach
// it, unless told otherwise.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "feeders/feeder.h"
#include "feeders/remote/credit/credit_consume.h"
#include "feeders/remote/credit/credit_consume_encoded.h"
#include "feeders/remote/credit/turns.h"
#include "feeders/remote/receive/threads_together.h"
#include "feeders/remote/receive/zmq_consume_encoded.h"
#include "feeders/remote/receive/zmq_intake.h"
#include "feeders/remote/receive/zmq_memory.h"
#include "feeders/remote/wire/batch_message.h"
#include "feeders/remote/wire/zmq_op.h"
#include "feeders/remote/zmq_consume_plan.h"

namespace penstock::remote {
namespace {

class ZmqConsume final : public Feeder {
 public:
  explicit ZmqConsume(const FeederContext& context)
      : spec_(context.spec),
        clock_(context.clock),
        probe_(context.probe),
        marks_(context.marks),
        plan_(read_consume_plan(context.options, context.spec)),
        takes_turns_(plan_.receivers > 1 && context.data.order == Order::strict),
        intake_(context, plan_),
        images_(probe_.counter("images_received")),
        receiving_(probe_.stage({"receive", "receiver", plan_.receivers})),
        unpacking_(probe_.stage({"unpack", "receiver", plan_.receivers})) {
    if (plan_.keep_memory) keep_message_memory(BatchLayout(spec_, spec_.images).size());
    probe_.counter("receive_bound_bytes").add(plan_.most_bytes());
    probe_.note(describe_waiting(plan_, spec_));
  }

  void settle() override { intake_.framed().window_begins(); }

  void run(BatchRing& out, std::stop_token stop) override {
    run_together(plan_.receivers, stop, [&](const std::stop_token& end) {
      Receiver receiver(*this);
      receive_batches(receiver, out, end);
    });
    intake_.note_silent_endpoints();
    intake_.framed().summarise(copy_seconds());
  }

 private:
  /// The state of one receiver thread.
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
      Turn turn;
      const std::optional<WireBatch> batch = receive_batch(receiver, turn, stop);
      if (!batch) return;
      {
        const auto wait = receiver.unpacking.wait_out();
        lease.await();
      }
      copy(receiver, *batch, lease.batch());
      receiver.message.clear();
      if (!turn.has_come()) {
        const auto wait = receiver.unpacking.wait_out();
        turn.await();
      }
      std::move(lease).publish();
      images_.add(spec_.images);
    }
  }

  /// Receives the next good batch into the receiver's message, and sets its turn if the order
  /// matters. Empty: stopped, or the producer has ended.
  std::optional<WireBatch> receive_batch(Receiver& receiver, Turn& turn,
                                         const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    const Time since = clock_.now();
    StageTimer::Item item(receiver.receiving);
    while (intake_.receive(receiver.message, since, receiver.receiving, item, stop)) {
      if (takes_turns_) turn = Turn(turns_, receiver.message.number);
      try {
        const std::optional<WireBatch> batch = read(receiver);
        intake_.accept(receiver.message);
        if (!batch) {
          turn = Turn();
          continue;
        }
        item.done(spec_.images, receiver.message.bytes());
        return batch;
      } catch (const DataError& error) {
        turn.await();
        intake_.reject(receiver.message, error.what());
        turn = Turn();
      }
    }
    return std::nullopt;
  }

  /// Returns views of the batch in the receiver's message. Empty: the message is valid but not a
  /// batch. Throws DataError if the message is invalid.
  std::optional<WireBatch> read(Receiver& receiver) {
    const MessageFrames frames = receiver.message.frames();
    const MessageFormat format = plan_.format.value_or(detect_message_format(frames));
    const std::optional<WireBatch> batch = format == MessageFormat::framed
                                               ? intake_.framed().take(frames, realtime_ns())
                                               : receiver.reader.read(format, frames);
    note_format(format);
    return batch;
  }

  /// Average time to copy one batch; 0: not timed.
  double copy_seconds() const {
    const std::int64_t items = unpacking_.timed_items.value();
    if (items == 0) return 0;
    return 1e-9 * static_cast<double>(unpacking_.wall_ns.value()) / static_cast<double>(items);
  }

  void copy(Receiver& receiver, const WireBatch& batch, Batch& slot) {
    const Mark mark(marks_, "copy out of the message");
    StageTimer::Item item(receiver.unpacking);
    copy_batch(batch, slot);
    item.done(spec_.images, static_cast<std::int64_t>(spec_.bytes()));
  }

  /// Notes each received format once, unless the format option is set.
  void note_format(MessageFormat format) {
    const auto bit = 1U << static_cast<unsigned>(format);
    if (plan_.format || (seen_formats_.load(std::memory_order_relaxed) & bit) != 0) return;
    if ((seen_formats_.fetch_or(bit) & bit) != 0 || format == MessageFormat::zmq_op) return;
    probe_.note("messages have the format " + std::string(to_string(format)));
  }

  const BatchSpec spec_;
  Clock& clock_;
  Probe& probe_;
  const Marks marks_;
  const ConsumePlan plan_;
  const bool takes_turns_;
  ZmqIntake intake_;
  Counter& images_;
  StageCounters &receiving_, &unpacking_;
  Turns turns_;                            // of messages, by their numbers
  std::atomic<unsigned> seen_formats_{0};  // one bit per format
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  const bool image_files = wants_image_files(context.options);
  if (context.options.integer("credit") != 0) {
    const ConsumePlan plan = image_files ? read_encoded_plan(context.options, context.spec)
                                         : read_consume_plan(context.options, context.spec);
    const ZmqSocketOptions socket = read_credit_socket(context.options, plan);
    return image_files ? make_credit_consume_encoded(context, socket)
                       : make_credit_consume(context, socket);
  }
  if (image_files) return make_encoded_consumer(context);
  return std::make_unique<ZmqConsume>(context);
}

std::int64_t outside_reserve(const Options& options, const BatchSpec& spec) {
  if (options.integer("credit") != 0) return credit_reserve(options);
  if (wants_image_files(options)) return encoded_reserve(options, spec);
  const ConsumePlan plan = read_consume_plan(options, spec);
  return static_cast<std::int64_t>(plan.endpoints.size()) * plan.most_waiting();
}

/// Covers messages of pixels only: the sizes of image files are not known before they arrive.
std::vector<MemoryNeed> memory_needs(const Options& options, const BatchSpec& spec) {
  if (wants_image_files(options)) return {};
  if (options.integer("credit") != 0) return credit_memory_needs(options, spec);
  const ConsumePlan plan = read_consume_plan(options, spec);
  const auto producers = static_cast<double>(std::max(plan.producers, 1));
  std::vector<MemoryNeed::Factor> factors{{"--batch-size", static_cast<double>(spec.images)}};
  if (!options.given("buffer")) {
    factors.push_back({"zmq-consume:hwm", static_cast<double>(plan.socket.hwm)});
  }
  return {{"batches in sockets",
           static_cast<double>(plan.endpoints.size()) * producers *
               static_cast<double>(plan.most_messages()) * static_cast<double>(spec.bytes()),
           std::move(factors)}};
}

}  // namespace

extern constinit const FeederEntry zmq_consume_feeder{
    .name = "zmq-consume",
    .summary = "batches from other programs over ZeroMQ",
    .needs_producer = true,
    .options = kAllConsumeOptions,
    .shape_batches = shape_consumed_batches,
    .make = make,
    .outside_reserve = outside_reserve,
    .memory_needs = memory_needs,
};

}  // namespace penstock::remote
