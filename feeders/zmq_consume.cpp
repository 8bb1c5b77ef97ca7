// SPDX-License-Identifier: Apache-2.0
// Batches from outside producers, in any language, over ZeroMQ: a PULL socket, messages of the
// formats of batch_message.h, one copy from libzmq's memory into the slot.
//
// What waits in the socket is bounded in messages (hwm, per producer) and, as no message may be
// larger than max_message, in bytes. libzmq does not count the frames of an unfinished multi-frame
// message, so this bound does not hold against a producer that means harm: it only binds where this
// machine's users can reach it, unless told otherwise.
#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "dataflow/wire/batch_message.h"
#include "dataflow/wire/zmq_op.h"
#include "feeders/feeder.h"
#include "feeders/framed_intake.h"
#include "feeders/producer_process.h"
#include "feeders/zmq_socket.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"endpoint", "ipc://testpipe", "ipc://PATH, ipc://@NAME or tcp://HOST:PORT"},
    {"bind", "true", "this side binds and producers connect; false: the other way round"},
    {"hwm", "8", "messages that may wait in the socket, per producer"},
    {"max_message", "auto",
     "largest message, in bytes; auto: four batches, so that float32 is named"},
    {"io_threads", "1", "libzmq's own threads"},
    {"format", "auto",
     "zmq_op, pickle, msgpack, numpy-frames or framed; auto: by each message's first bytes"},
    {"producers", "0", "the data end with the end of so many framed producers; 0: they do not"},
    {"producer", "", "a shell command to run as long as the feeder, such as 'penstock serve'"},
    {"curve_secret", "", kCurveSecretHelp},
    {"curve_allow", "", kCurveAllowHelp},
    {"curve_server_key", "", kCurveServerKeyHelp},
    {"insecure", "false", "may bind tcp:// without keys where other machines can send"},
};

/// Bad messages in a row for which a producer is cut off, where bad ones are skipped.
constexpr int kMostBadInARow = 8;

/// Producers that may be waited for: as many as the ledger knows.
constexpr std::int64_t kMostProducers = ProducerLedger::Limits{}.producers;

/// What a producer that has ended left in the kernel's buffers arrives within this time.
constexpr Nanoseconds kFlush = std::chrono::seconds(1);

/// Room for messages of the wrong type or size, which are then named instead of cut off.
std::uint64_t default_max_message(const BatchSpec& spec) {
  return 4 * BatchLayout(spec, spec.images).size() + (std::uint64_t{64} << 10);
}

ZmqSocketOptions socket_options(const FeederContext& context) {
  const Options& options = context.options;
  const std::uint64_t max_message = options.text("max_message") == "auto"
                                        ? default_max_message(context.spec)
                                        : options.bytes("max_message");
  if (max_message < BatchLayout(context.spec, context.spec.images).size()) {
    throw ConfigError(
        "zmq-consume:max_message is " + options.text("max_message") + "; a batch has " +
        std::to_string(BatchLayout(context.spec, context.spec.images).size()) + " bytes");
  }
  return {.role = ZmqSocketOptions::Role::pull,
          .bind = options.flag("bind"),
          .insecure = options.flag("insecure"),
          .curve = read_curve({.secret = options.text("curve_secret"),
                               .server_key = options.text("curve_server_key"),
                               .allow = options.text("curve_allow")}),
          .hwm = checked_count("zmq-consume:hwm", options.integer("hwm"), INT_MAX),
          .max_message = static_cast<std::int64_t>(max_message),
          .io_threads = checked_count("zmq-consume:io_threads", options.integer("io_threads"), 64)};
}

/// Refuses what this feeder does not take, before a socket is opened.
Endpoint checked_endpoint(const FeederContext& context) {
  if (context.spec.pixel != DType::u8 || context.spec.normalised) {
    throw ConfigError("zmq-consume receives uint8 pixels; this run wants another type");
  }
  return parse_endpoint(context.options.text("endpoint"));
}

/// Empty: messages say it themselves.
std::optional<MessageFormat> declared_format(const Options& options) {
  const std::string& text = options.text("format");
  if (canonical_name(text) == "auto") return std::nullopt;
  const std::optional<MessageFormat> format = message_format_of(text);
  if (format) return format;
  throw ConfigError("zmq-consume:format is '" + text +
                    "'; expected auto, zmq_op, pickle, msgpack, numpy-frames or framed");
}

std::int64_t producers_of(const Options& options) {
  const std::int64_t count = options.integer("producers");
  return count == 0 ? 0 : checked_count("zmq-consume:producers", count, kMostProducers);
}

/// Peers that were turned away, in the result.
PeerReports peer_reports(Probe& probe) {
  return {.refused = [&counter = probe.counter("peers_refused")] { counter.add(); },
          .say = [&probe](const std::string& text) { probe.note("zmq-consume " + text); }};
}

class ZmqConsume final : public Feeder {
 public:
  explicit ZmqConsume(const FeederContext& context)
      : spec_(context.spec),
        clock_(context.clock),
        probe_(context.probe),
        marks_(context.marks),
        policy_(context.on_bad_sample),
        timeout_(context.timeout),
        options_(socket_options(context)),
        endpoint_(checked_endpoint(context)),
        format_(declared_format(context.options)),
        socket_(endpoint_, options_, peer_reports(probe_)),
        received_(probe_.counter("messages_received")),
        rejected_(probe_.counter("messages_rejected")),
        cut_off_(probe_.counter("producers_cut_off")),
        bytes_(probe_.counter("bytes_received")),
        images_(probe_.counter("images_received")),
        framed_(spec_, probe_, producers_of(context.options)),
        receiving_(probe_.stage({"receive", "receiver"}), clock_),
        unpack_stage_(probe_.stage({"unpack", "receiver"})),
        unpacking_(unpack_stage_, clock_) {
    // One more is being received and one is being copied.
    probe_.counter("receive_bound_bytes").add((options_.hwm + 2) * options_.max_message);
    if (socket_.address() != endpoint_.text) {
      probe_.note("zmq-consume listens at " + socket_.address());
    }
    const std::string& command = context.options.text("producer");
    if (!command.empty()) producer_.emplace(command);
  }

  void run(BatchRing& out, std::stop_token stop) override {
    receive_batches(out, stop);
    framed_.summarise(copy_seconds());
  }

 private:
  void receive_batches(BatchRing& out, const std::stop_token& stop) {
    const auto slot = [&] {
      const auto wait = unpacking_.wait_out();
      return out.acquire(stop);
    };
    while (WriteLease lease = slot()) {
      const std::optional<WireBatch> batch = receive_batch(stop);
      if (!batch) return;
      {
        const auto wait = unpacking_.wait_out();
        lease.await();
      }
      copy(*batch, lease.batch());
      for (zmq::message_t& frame : frames_) frame.rebuild();
      std::move(lease).publish();
      images_.add(spec_.images);
    }
  }

  /// Of one batch, on average; 0: not timed.
  double copy_seconds() const {
    const std::int64_t items = unpack_stage_.timed_items.value();
    if (items == 0) return 0;
    return 1e-9 * static_cast<double>(unpack_stage_.wall_ns.value()) / static_cast<double>(items);
  }

  /// The next good batch, in frames_; empty: stopped, or the producer has ended.
  std::optional<WireBatch> receive_batch(const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    const Time deadline = clock_.now() + timeout_;
    StageTimer::Item item(receiving_);
    while (true) {
      if (!receive(frames_[0], deadline, item, stop)) return std::nullopt;
      const int connection = zmq_msg_get(frames_[0].handle(), ZMQ_SRCFD);
      try {
        const std::size_t count = receive_rest();
        const MessageFrames frames = std::span(views_).first(count);
        const MessageFormat format = format_.value_or(detect_message_format(frames));
        const std::optional<WireBatch> batch = format == MessageFormat::framed
                                                   ? framed_.take(frames, realtime_ns())
                                                   : reader_.read(format, frames);
        note_format(format);
        std::int64_t bytes = 0;
        for (const auto& frame : frames) bytes += static_cast<std::int64_t>(frame.size());
        bad_in_a_row_.erase(connection);
        if (!batch) continue;
        item.done(spec_.images, bytes);
        return batch;
      } catch (const DataError& error) {
        reject(sender_of(frames_[0].handle()), error.what());
        if (clock_.now() >= deadline) throw TimeoutError(silence());
      }
    }
  }

  /// Takes the frames behind the first off the socket, into frames_, and returns how many there are
  /// in all. Throws DataError for more than a batch can have, once they are all gone.
  std::size_t receive_rest() {
    zmq::socket_ref socket(zmq::from_handle, socket_.native());
    views_[0] = {frames_[0].data<std::byte>(), frames_[0].size()};
    std::size_t count = 1;
    bool more = frames_[0].more();
    zmq::message_t surplus;
    while (more) {
      zmq::message_t& frame = count < kMaxMessageFrames ? frames_[count] : surplus;
      // The frames of a message arrive as one: none of them is late.
      if (!socket.recv(frame, zmq::recv_flags::dontwait)) break;
      bytes_.add(static_cast<std::int64_t>(frame.size()));
      if (count < kMaxMessageFrames) views_[count] = {frame.data<std::byte>(), frame.size()};
      more = frame.more();
      ++count;
    }
    if (count <= kMaxMessageFrames) return count;
    throw DataError("a message of " + std::to_string(count) +
                    " frames; expected one, or a header and at most three");
  }

  /// Says once which formats came, where nobody declared one.
  void note_format(MessageFormat format) {
    const auto bit = 1U << static_cast<unsigned>(format);
    if (format_ || (seen_formats_ & bit) != 0) return;
    seen_formats_ |= bit;
    if (format == MessageFormat::zmq_op) return;
    probe_.note("zmq-consume reads messages of the format " + std::string(to_string(format)));
  }

  void copy(const WireBatch& batch, Batch& slot) {
    const Mark mark(marks_, "copy out of the message");
    StageTimer::Item item(unpacking_);
    copy_batch(batch, slot);
    item.done(spec_.images, static_cast<std::int64_t>(spec_.bytes()));
  }

  /// The first frame of the next message, good or bad; false: stopped, or the producer has ended.
  bool receive(zmq::message_t& message, Time deadline, StageTimer::Item& item,
               const std::stop_token& stop) {
    using Flow = ProducerLedger::Flow;
    zmq::socket_ref socket(zmq::from_handle, socket_.native());
    while (true) {
      const Flow flow = framed_.flow();
      if (flow == Flow::complete) return false;
      if (socket.recv(message, zmq::recv_flags::dontwait)) break;
      const bool ended = producer_ended();
      Nanoseconds limit = deadline - clock_.now();
      if (ended || flow == Flow::stragglers) limit = std::min(limit, kFlush);
      const ZmqSocket::Wake wake = wait(limit, producer_ && !ended ? producer_->fd() : -1, stop);
      item.restart();
      switch (wake) {
        case ZmqSocket::Wake::stopped:
          return false;
        case ZmqSocket::Wake::ready:
        case ZmqSocket::Wake::other:
          break;
        case ZmqSocket::Wake::late:
          if (flow == Flow::stragglers) return false;
          if (ended && !producer_->group_lives()) return end_of_producer();
          if (!ended || clock_.now() >= deadline) throw TimeoutError(silence());
      }
    }
    if (stop.stop_requested()) return false;
    socket_.look();
    received_.add();
    bytes_.add(static_cast<std::int64_t>(message.size()));
    return true;
  }

  ZmqSocket::Wake wait(Nanoseconds limit, int other_fd, const std::stop_token& stop) {
    const auto waiting = receiving_.wait_in();
    return socket_.wait(limit, stop, other_fd);
  }

  void reject(const MessageSender& sender, const std::string& why) {
    rejected_.add();
    const std::string text = "message " + std::to_string(received_.value()) + " of " +
                             describe(sender) + " at " + endpoint_.text + " refused: " + why;
    if (policy_.action == BadSamplePolicy::Action::fail) {
      throw DataError(text +
                      "; mend the producer, or skip such messages with --on-bad-sample skip");
    }
    probe_.note(text);
    if (policy_.limit >= 0 && rejected_.value() > policy_.limit) {
      throw DataError(text + "; that is more than --on-bad-sample skip:limit=" +
                      std::to_string(policy_.limit) + " allows");
    }
    last_rejection_ = text;
    if (++bad_in_a_row_[sender.connection] < kMostBadInARow) return;
    bad_in_a_row_.erase(sender.connection);
    if (!socket_.cut_off(sender)) return;
    cut_off_.add();
    probe_.note("cut off " + describe(sender) + " after " + std::to_string(kMostBadInARow) +
                " bad messages in a row" +
                (sender.public_key.empty() ? ", until it connects anew" : "; its key is banned"));
  }

  /// Whether our own producer has ended, as it may; throws when it failed.
  bool producer_ended() {
    const std::optional<int> status = producer_ ? producer_->status() : std::nullopt;
    if (status.value_or(0) == 0) return status.has_value();
    throw DataError("producer '" + producer_->command() + "' " + producer_->describe_end() +
                    " while batches were still wanted; run it by itself to see why");
  }

  /// The producer went in peace and all it sent is here. Never true.
  bool end_of_producer() const {
    if (images_.value() > 0) return false;
    throw DataError("producer '" + producer_->command() + "' " + producer_->describe_end() +
                    " and sent no batch that could be used" +
                    (last_rejection_.empty() ? "" : "; the last: " + last_rejection_));
  }

  /// What is known when nothing usable came in time.
  std::string silence() const {
    std::string text = "no batch came over " + describe(endpoint_) + " within " +
                       seconds_text(timeout_) + " (this side " +
                       (options_.bind ? "binds" : "connects") + "); ";
    const ZmqSocket::Peers peers = socket_.peers();
    if (peers.refused > 0) {
      text += std::to_string(peers.refused) +
              " tries to come in were refused, see the notes about keys; ";
    }
    if (!last_rejection_.empty()) {
      text += std::to_string(rejected_.value()) +
              " messages were refused, the last: " + last_rejection_;
    } else if (peers.left > 0) {
      text += std::to_string(peers.left) + " of " + std::to_string(peers.joined) +
              " connections of producers have ended; libzmq cuts off those that send more than "
              "max_message = " +
              std::to_string(options_.max_message) + " bytes";
    } else if (peers.joined > 0) {
      text += "a producer is connected but silent";
    } else {
      text += "no producer ever connected";
    }
    return text + framed_.silence() + "; start one, such as `penstock serve --endpoint " +
           endpoint_.text + " --batch-size " + std::to_string(spec_.images) +
           (options_.bind ? "" : " --bind") + "`, or wait longer with --timeout";
  }

  const BatchSpec spec_;
  Clock& clock_;
  Probe& probe_;
  const Marks marks_;
  const BadSamplePolicy policy_;
  const Nanoseconds timeout_;
  const ZmqSocketOptions options_;
  const Endpoint endpoint_;
  const std::optional<MessageFormat> format_;
  ZmqSocket socket_;
  Counter &received_, &rejected_, &cut_off_, &bytes_, &images_;
  FramedIntake framed_;
  StageTimer receiving_;
  StageCounters& unpack_stage_;
  StageTimer unpacking_;
  BatchMessageReader reader_{spec_};
  std::array<zmq::message_t, kMaxMessageFrames> frames_;
  std::array<std::span<const std::byte>, kMaxMessageFrames> views_;  // of frames_
  unsigned seen_formats_ = 0;                                        // a bit each
  std::string last_rejection_;
  std::map<int, int> bad_in_a_row_;          // of each connection
  std::optional<ProducerProcess> producer_;  // ends before the socket does
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  return std::make_unique<ZmqConsume>(context);
}

/// A full socket on either side, one message under way and one being received. The producer's hwm
/// is taken to be ours.
std::int64_t outside_reserve(const Options& options) {
  return 2 * checked_count("zmq-consume:hwm", options.integer("hwm"), INT_MAX) + 2;
}

}  // namespace

extern constinit const FeederEntry zmq_consume_feeder{
    .name = "zmq-consume",
    .summary = "batches from outside producers over ZeroMQ, and the copy",
    .needs_producer = true,
    .options = kOptions,
    .make = make,
    .outside_reserve = outside_reserve,
};

}  // namespace penstock
