// SPDX-License-Identifier: Apache-2.0
// Producers that push: reads all sockets of zmq-consume as one. It takes messages of each endpoint
// in turn, so that none starves another. Any number of threads may receive; one at a time uses the
// sockets, and the others block until it is done. No message is queued or allocated in between.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/remote/receive/message_intake.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"

namespace penstock::remote {
namespace {

/// Data of an ended producer in kernel buffers arrive within this time.
constexpr Nanoseconds kFlush = std::chrono::seconds(1);

/// Time between checks for peers that left and for floods of bytes, while no message comes.
constexpr Nanoseconds kLookPeriod = std::chrono::milliseconds(100);

ZmqSocketOptions options_of(const ConsumePlan& plan, std::size_t index) {
  ZmqSocketOptions options = plan.socket;
  options.bind = plan.endpoints[index].bind;
  options.server = index;
  return options;
}

/// Puts peers that were turned away into the result.
net::PeerReports peer_reports(const ConsumePlan& plan, std::size_t index, Probe& probe) {
  const std::string at =
      plan.endpoints.size() == 1 ? "" : fmt::format("at {}: ", plan.endpoints[index].endpoint.text);
  return {.refused = [&counter = probe.counter("peers_refused")] { counter.add(); },
          .say = [&probe, at](const std::string& text) { probe.note("zmq-consume " + at + text); }};
}

/// One socket of zmq-consume: receives whole messages, cuts off senders of too many bytes, and
/// explains why no message comes. One thread at a time.
class Receiver {
 public:
  /// Opens endpoint number `index` of the plan.
  Receiver(const ConsumePlan& plan, std::size_t index, Probe& probe)
      : endpoint_(plan.endpoints[index]),
        index_(index),
        max_message_(plan.socket.max_message),
        flood_bytes_(plan.flood_bytes()),
        probe_(probe),
        cut_off_(probe.counter("producers_cut_off")),
        mute_(probe.counter("producers_without_messages")),
        socket_(endpoint_.endpoint, options_of(plan, index), peer_reports(plan, index, probe)) {
    if (socket_.address() != endpoint()) {
      probe.note("zmq-consume listens at " + socket_.address());
    }
  }

  /// Receives the next message; false: none is there.
  bool receive(ZmqMessage& message) {
    if (!message.receive(socket_.native())) return false;
    message.endpoint = index_;
    ++received_;
    if (!is_inproc()) socket_.note_received(message);
    if (may_be_flooded()) {
      socket_.look();
      socket_.took(message.connection(), message.bytes());
    }
    return true;
  }

  /// Checks which peers came and went, and closes connections that send many bytes outside
  /// messages.
  void look() {
    socket_.look();
    if (!may_be_flooded()) return;
    for (const std::string& peer : socket_.cut_off_floods(flood_bytes_)) {
      cut_off_.add();
      probe_.note(
          fmt::format("cut off {} at {}: it sent more than {} bytes without a complete message",
                      peer, endpoint(), flood_bytes_));
    }
  }

  /// Names peers that came and went without a message. Call while no message comes.
  void report_mute_peers() {
    for (const auto& [peer, is_foreign] : socket_.mute_peers()) {
      probe_.note(fmt::format(
          "{} came to {} and disconnected without a message; {}", peer, endpoint(),
          is_foreign
              ? "it is not a PUSH socket of ZeroMQ, which alone may send here: PUB, "
                "REQ, ROUTER and DEALER sockets are turned away"
              : fmt::format(
                    "it ended, or libzmq cut it off, silently, as it does if a frame has more than "
                    "max_message = {} bytes",
                    max_message_)));
      mute_.add();
    }
  }

  ZmqSocket& socket() noexcept { return socket_; }
  std::int64_t received() const noexcept { return received_; }
  /// "ipc://feed (in /home/me)", "this side binds".
  std::string place() const { return net::describe(endpoint_.endpoint); }
  std::string side() const { return endpoint_.bind ? "this side binds" : "this side connects"; }

  /// Describes refused connection attempts; empty: none.
  std::string refusals() const {
    const std::int64_t refused = socket_.peers().refused;
    if (refused == 0) return "";
    return fmt::format("{} connections were refused, see the notes about keys", refused);
  }

  /// Explains why no message comes: no peer, peers gone, or peers silent.
  std::string silence() const {
    if (is_inproc()) return "no thread of this process sends batches";
    const ZmqSocket::Peers peers = socket_.peers();
    if (peers.joined == 0) return "no producer ever connected";
    std::string text = received_ == 0 ? "" : fmt::format("{} messages came; ", received_);
    if (peers.left == 0) return text + "a producer is connected but silent";
    text += fmt::format("{} of {} connections of producers have ended", peers.left, peers.joined);
    if (peers.left < peers.joined) text += ", and the remaining ones are silent";
    return fmt::format(
        "{}: they ended, or libzmq disconnected them for more than max_message = {} bytes", text,
        max_message_);
  }

  /// Advice such as "start one, such as `penstock serve ...`".
  std::string advice(const BatchSpec& spec) const {
    if (is_inproc()) return "push some from a thread, or wait longer with --timeout";
    const std::string& at = endpoint().ends_with('*') ? socket_.address() : endpoint();
    return fmt::format(
        "start one, such as `penstock serve --endpoint {} {}{}`, or wait longer with --timeout", at,
        spec.opaque ? "--loader FILE.py:FUNCTION" : fmt::format("--batch-size {}", spec.images),
        endpoint_.bind ? "" : " --bind");
  }

 private:
  /// As the user wrote it.
  const std::string& endpoint() const noexcept { return endpoint_.endpoint.text; }
  /// libzmq reports no peers for inproc.
  bool is_inproc() const noexcept { return endpoint_.endpoint.kind == net::Endpoint::Kind::inproc; }
  /// Whether a peer can send bytes that libzmq does not count.
  bool may_be_flooded() const noexcept {
    return endpoint_.endpoint.kind == net::Endpoint::Kind::tcp;
  }

  const ConsumeEndpoint endpoint_;
  const std::size_t index_;
  const std::int64_t max_message_, flood_bytes_;
  Probe& probe_;
  Counter &cut_off_, &mute_;
  ZmqSocket socket_;
  std::int64_t received_ = 0;
};

class PushIntake final : public MessageIntake {
 public:
  PushIntake(const FeederContext& context, const ConsumePlan& plan)
      : MessageIntake(context, plan,
                      {.producers = plan.producers, .one_machine = plan.is_on_one_machine()}),
        format_(plan.format),
        is_shared_(plan.receivers > 1),
        in_order_(is_shared_ && context.data.order == Order::strict) {
    for (std::size_t i = 0; i < plan.endpoints.size(); ++i) {
      receivers_.push_back(std::make_unique<Receiver>(plan, i, probe_));
      sockets_.push_back(&receivers_.back()->socket());
    }
    start_producer(plan.producer);
  }
  ~PushIntake() override { producer_.reset(); }

  bool receive(Arrival& to, Time since, StageTimer& timer, StageTimer::Item& item,
               const std::stop_token& stop) override;
  void end(double copy_s) override;

 private:
  // Call all of these with mutex_ held.
  bool receive_now(ZmqMessage& message);
  /// Deadline of the next good message; another thread may be about to accept one.
  Time deadline(Time since) const { return std::max(since, good_at_.load()) + timeout_; }
  bool await_message(Time since, StageTimer& timer, const std::stop_token& stop);
  ZmqSocket::Wake wait(StageTimer& timer, Nanoseconds limit, int other_fd,
                       const std::stop_token& stop);
  void cut_off_offenders();
  std::string silence() const;

  bool receive_any(ZmqMessage& message, Time since, StageTimer& timer, StageTimer::Item& item,
                   const std::stop_token& stop);

  const std::optional<MessageFormat> format_;  // empty: detected for each message
  const bool is_shared_;                       // by several threads
  const bool in_order_;                        // the order of messages counts
  Turns turns_;                                // of messages, by their numbers

  std::mutex mutex_;  // held by the thread that uses the sockets
  // All below under mutex_.
  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::vector<ZmqSocket*> sockets_;  // of receivers_
  std::size_t turn_ = 0;             // index of the socket to read first
};

bool PushIntake::receive(Arrival& to, Time since, StageTimer& timer, StageTimer::Item& item,
                         const std::stop_token& stop) {
  while (receive_any(to.message, since, timer, item, stop)) {
    to.arrived_ns = wall_clock_ns();
    if (in_order_) to.turn = Turn(turns_, to.message.number);
    to.format = format_.value_or(MessageFormat::zmq_op);
    to.framed.reset();
    try {
      const MessageFrames frames = to.message.frames();
      to.format = format_.value_or(detect_message_format(frames));
      if (to.format != MessageFormat::framed) return true;
      to.framed = framed_.open(frames);
      if (to.framed) {
        to.ahead = framed_.clock_of(to.framed->header.producer);
        return true;
      }
      note_good(to.message);
      to.turn = Turn();
    } catch (const MisfitError& error) {
      refuse(to, error.what(), true);
    } catch (const DataError& error) {
      refuse(to, error.what(), false);
    }
  }
  return false;
}

/// Receives the next message, good or bad.
bool PushIntake::receive_any(ZmqMessage& message, Time since, StageTimer& timer,
                             StageTimer::Item& item, const std::stop_token& stop) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    const auto wait = timer.wait_in();
    lock.lock();
    item.restart();
  }
  if (stop.stop_requested()) return false;
  cut_off_offenders();
  if (clock_.now() >= deadline(since)) throw TimeoutError(silence());
  while (true) {
    if (framed_.flow() == ProducerAccounts::Flow::complete) return false;
    if (receive_now(message)) break;
    if (!await_message(since, timer, stop)) return false;
    item.restart();
  }
  for (const auto& receiver : receivers_) receiver->look();
  count(message);
  return true;
}

/// Begins with the endpoint after the one that was read last.
bool PushIntake::receive_now(ZmqMessage& message) {
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    const std::size_t index = (turn_ + i) % receivers_.size();
    if (!receivers_[index]->receive(message)) continue;
    turn_ = index + 1;
    return true;
  }
  return false;
}

/// Waits until there may be a message. False: stopped, or the producers have ended without error
/// and all they sent is here, or can no longer arrive.
bool PushIntake::await_message(Time since, StageTimer& timer, const std::stop_token& stop) {
  const bool ended = producer_ended();
  const bool straggles = framed_.flow() == ProducerAccounts::Flow::stragglers;
  Nanoseconds limit = deadline(since) - clock_.now();
  // Another thread may hold the last message.
  if (ended || straggles || is_shared_) limit = std::min(limit, kFlush);
  const ZmqSocket::Wake wake = wait(timer, limit, producer_ && !ended ? producer_->fd() : -1, stop);
  if (wake != ZmqSocket::Wake::late) return wake != ZmqSocket::Wake::stopped;
  if (straggles) return false;
  if (ended && !producer_->group_lives()) {
    check_end_of_producer();
    return false;
  }
  if (clock_.now() >= deadline(since)) throw TimeoutError(silence());
  return true;
}

ZmqSocket::Wake PushIntake::wait(StageTimer& timer, Nanoseconds limit, int other_fd,
                                 const std::stop_token& stop) {
  const auto waiting = timer.wait_in();
  while (true) {
    const Nanoseconds part = std::min(limit, kLookPeriod);
    const ZmqSocket::Wake wake = ZmqSocket::wait_for_any(sockets_, part, stop, other_fd);
    if (wake != ZmqSocket::Wake::late) return wake;
    for (const auto& receiver : receivers_) receiver->report_mute_peers();
    if (part == limit) return wake;
    limit -= part;
    for (const auto& receiver : receivers_) receiver->look();
  }
}

void PushIntake::cut_off_offenders() {
  if (!bad_.has_offenders()) return;
  for (const BadMessages::Offender& offender : bad_.take_offenders()) {
    if (sockets_[offender.endpoint]->cut_off(offender.sender)) bad_.note_cut_off(offender);
  }
}

std::string PushIntake::silence() const {
  const bool single = receivers_.size() == 1;
  std::string text = bad_.count() > 0 ? "no usable batch came over " : "no batch came over ";
  if (!single) text += fmt::format("any of {} endpoints ", receivers_.size());
  if (single) text += receivers_[0]->place() + " ";
  text += "within " + seconds_text(timeout_);
  const std::string refused = refusals();
  for (const auto& receiver : receivers_) {
    text += single ? fmt::format(" ({}); ", receiver->side())
                   : fmt::format("; {} ({}): ", receiver->place(), receiver->side());
    const std::string refusals = receiver->refusals();
    if (!refusals.empty()) text += refusals + "; ";
    if (!single || refused.empty()) text += receiver->silence();
  }
  if (!refused.empty()) text += (single ? "" : "; ") + refused;
  return text + framed_.silence() + (refused.empty() ? "; " : "; correct the producer, or ") +
         receivers_[0]->advice(spec_);
}

/// Says which endpoints sent nothing, if there are several.
void PushIntake::end(double copy_s) {
  const std::lock_guard lock(mutex_);
  for (const auto& receiver : receivers_) {
    if (receiver->received() > 0 || receivers_.size() == 1) continue;
    probe_.note(fmt::format("zmq-consume received nothing at {} ({}): {}", receiver->place(),
                            receiver->side(), receiver->silence()));
  }
  MessageIntake::end(copy_s);
}

}  // namespace

std::unique_ptr<MessageIntake> make_push_intake(const FeederContext& context,
                                                const ConsumePlan& plan) {
  return std::make_unique<PushIntake>(context, plan);
}

}  // namespace penstock::remote
