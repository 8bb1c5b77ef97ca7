// SPDX-License-Identifier: Apache-2.0
// Batches from outside producers, in any language, over ZeroMQ: PULL sockets, messages of the
// formats of batch_message.h, one copy from libzmq's memory into the slot.
//
// What waits in a socket is bounded in messages (hwm, per producer) and, for messages of one frame,
// as none may be larger than max_message, in bytes. libzmq counts a message of several frames as
// one, once its last one came. Against a producer that means harm this bound is kept over TCP alone
// (README.md): a socket only binds where this machine's users can reach it, unless told otherwise.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "dataflow/wire/batch_message.h"
#include "dataflow/wire/zmq_op.h"
#include "feeders/credit_consume.h"
#include "feeders/credit_consume_encoded.h"
#include "feeders/feeder.h"
#include "feeders/threads_together.h"
#include "feeders/turns.h"
#include "feeders/zmq_consume_encoded.h"
#include "feeders/zmq_consume_plan.h"
#include "feeders/zmq_intake.h"
#include "feeders/zmq_memory.h"

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

  /// The next good batch, in the receiver's message, and its turn where the order counts; empty:
  /// stopped, or the producer has ended.
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

  /// What the receiver's message holds, as views; empty: no batch, but what belongs between them.
  /// Throws DataError where it is neither.
  std::optional<WireBatch> read(Receiver& receiver) {
    const MessageFrames frames = receiver.message.frames();
    const MessageFormat format = plan_.format.value_or(detect_message_format(frames));
    const std::optional<WireBatch> batch = format == MessageFormat::framed
                                               ? intake_.framed().take(frames, realtime_ns())
                                               : receiver.reader.read(format, frames);
    note_format(format);
    return batch;
  }

  /// Of one batch, on average; 0: not timed.
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
  const bool takes_turns_;
  ZmqIntake intake_;
  Counter& images_;
  StageCounters &receiving_, &unpacking_;
  Turns turns_;                            // of messages, by their numbers
  std::atomic<unsigned> seen_formats_{0};  // a bit each
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

/// Of messages with pixels; the sizes of image files are not known before they come.
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

}  // namespace penstock
