// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/send/sender.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::remote {
namespace {

using Role = ZmqSocketOptions::Role;

/// With credit: room in the socket besides batches, for a hello, an end and a few credits.
constexpr std::int64_t kOtherMessages = 16;
/// Time between checks whether the receiver has read everything, after the last batch.
constexpr Nanoseconds kUnreadPeriod = std::chrono::milliseconds(5);
/// This many checks in a row must find no unread bytes.
constexpr int kLooks = 3;
/// libzmq may keep the last bytes of small messages in a buffer.
constexpr std::chrono::milliseconds kLinger{1000};

/// With credit, the number of slots limits what waits: the socket has room for every batch that the
/// consumer has room for.
ZmqSocketOptions with_room(ZmqSocketOptions options, std::size_t slots) {
  PENSTOCK_ASSERT(options.role == Role::push || options.role == Role::dealer);
  if (options.role == Role::dealer) {
    options.hwm = static_cast<std::int64_t>(slots) + kOtherMessages;
  }
  return options;
}

}  // namespace

Sender::Sender(std::unique_ptr<BatchSupply> supply, const net::Endpoint& endpoint,
               const ZmqSocketOptions& options, Clock& clock, Probe& probe,
               net::PeerReports reports)
    : endpoint_(endpoint),
      clock_(clock),
      batches_(probe.counter("batches_sent")),
      images_(probe.counter("images_sent")),
      bytes_(probe.counter("bytes_sent")),
      wait_ns_(probe.counter("send_wait_ns")),
      supply_(std::move(supply)),
      socket_(endpoint, with_room(options, supply_->slots()), std::move(reports)) {
  if (options.role == Role::push) return;
  Counter& lost = probe.counter("leases_lost");
  session_.emplace(
      socket_, endpoint_, supply_->hello(), supply_->classes(),
      ProducerSession::Hooks{
          .lost = [this, &lost] { lost.add(supply_->lose_leases()); },
          .returned =
              [this](std::uint64_t lease) {
                supply_->returned(lease);
                progress_ = clock_.now();
              },
          .say = !options.bind ? nullptr
                               : std::function<void(const std::string&)>(
                                     [&probe](const std::string& text) { probe.note(text); })});
}

void Sender::run(const PushPlan& plan, std::stop_token stop) {
  supply_->begin(plan);
  if (!session_ && !send({.frames = supply_->hello()}, plan, stop)) return;
  BatchSupply::Serve serve;
  if (session_) {
    serve = [this, &stop](int fd) {
      session_->look();
      socket_.wait(ProducerSession::kBeat, stop, fd);
    };
  }
  while (true) {
    {
      const CountedWait wait(wait_ns_, clock_);
      if (!supply_->await_held(supply_->most_held(), plan.timeout, stop)) {
        if (stop.stop_requested()) return;
        nobody_takes(plan.timeout);
      }
    }
    const std::optional<BatchSupply::Message> message = supply_->next(serve, stop);
    if (!message) break;
    if (!send(*message, plan, stop)) return;
    batches_.add();
    images_.add(message->images);
    bytes_.add(message->bytes);
  }
  if (stop.stop_requested() || !finish(plan, stop)) return;
  // When a connection ends, a receiver with a full socket (libzmq 4.3) drops what it has not read.
  // The kernel has no event for "all was read", so this polls. It polls several times in a row,
  // because libzmq may send more after the kernel's bytes were read.
  const Time started = clock_.now();
  for (int looks = 0; looks < kLooks && !stop.stop_requested();
       looks = socket_.has_unread_bytes() ? 0 : looks + 1) {
    if (clock_.now() - started > plan.timeout) nobody_takes(plan.timeout);
    clock_.sleep_until(clock_.now() + kUnreadPeriod, stop);
  }
  if (!stop.stop_requested()) socket_.linger(kLinger);
}

/// Sends a message; none if it has no frames. False: stopped.
bool Sender::send(const BatchSupply::Message& message, const PushPlan& plan,
                  const std::stop_token& stop) {
  const std::span<const OutgoingFrame> frames = message.frames;
  if (frames.empty()) return true;
  const CountedWait wait(wait_ns_, clock_);
  progress_ = clock_.now();
  std::array<zmq::message_t, kMaxMessageFrames> messages;
  PENSTOCK_ASSERT(frames.size() <= messages.size());
  const auto make = [&](std::size_t i) {
    const std::span<std::byte> bytes = frames[i].bytes;
    if (frames[i].in_slot) {
      messages[i].rebuild(bytes.data(), bytes.size(), BatchSupply::give_back, message.slot);
    } else {
      messages[i].rebuild(bytes.data(), bytes.size());
    }
  };
  const auto flags = [&](std::size_t i) {
    return i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
  };
  for (std::size_t i = 0; i < frames.size(); ++i) make(i);
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  while (true) {
    if (session_ && !await_credit(plan.timeout, stop)) return false;
    supply_->stamp();
    if (!frames[0].in_slot) make(0);  // it carries the time of sending
    if (socket.send(messages[0], flags(0) | zmq::send_flags::dontwait)) break;
    // With credit the connection has just ended.
    const ZmqSocket::Wake wake =
        socket_.wait(session_ ? ProducerSession::kBeat : plan.timeout, stop);
    if (wake == ZmqSocket::Wake::stopped) return false;
    if (wake == ZmqSocket::Wake::late && !session_) nobody_takes(plan.timeout);
  }
  // The peer that accepted the first frame accepts the others without a wait. If it has gone,
  // libzmq drops them.
  for (std::size_t i = 1; i < frames.size(); ++i) {
    static_cast<void>(socket.send(messages[i], flags(i)));
  }
  supply_->sent();
  if (session_) session_->note_sent();
  return true;
}

/// Waits until the consumer has room for one more batch. False: stopped.
bool Sender::await_credit(Nanoseconds timeout, const std::stop_token& stop) {
  for (session_->look(); !session_->may_send(); session_->look()) {
    if (clock_.now() - progress_ > timeout) nobody_takes(timeout);
    if (socket_.wait(ProducerSession::kBeat, stop) == ZmqSocket::Wake::stopped) return false;
  }
  return true;
}

/// Sends the end, and waits until nothing is held. False: stopped.
bool Sender::finish(const PushPlan& plan, const std::stop_token& stop) {
  const std::span<const OutgoingFrame> end = supply_->end();
  if (!session_) {
    if (!send({.frames = end}, plan, stop)) return false;
    if (supply_->await_held(0, plan.timeout, stop)) return true;
    if (stop.stop_requested()) return false;
    nobody_takes(plan.timeout);
  }
  // A consumer that has gone, or has not connected yet, does not expect an end.
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  bool ended = false;
  std::size_t held = supply_->held();
  progress_ = clock_.now();
  while (!stop.stop_requested()) {
    session_->look();
    if (session_->is_welcome() && !ended) {
      supply_->stamp();
      ended = socket
                  .send(zmq::buffer(end[0].bytes.data(), end[0].bytes.size()),
                        zmq::send_flags::dontwait)
                  .has_value();
    }
    const std::size_t held_now = supply_->held();
    if (std::exchange(held, held_now) != held_now) progress_ = clock_.now();
    if (held_now == 0) return true;
    if (clock_.now() - progress_ > plan.timeout) nobody_takes(plan.timeout);
    socket_.wait(ProducerSession::kBeat, stop);
  }
  return false;
}

/// Throws TimeoutError: no consumer took a batch within the timeout.
void Sender::nobody_takes(Nanoseconds timeout) const {
  const ZmqSocket::Peers peers = socket_.peers();
  std::string why = fmt::format("{} consumers connected, {} went away", peers.joined, peers.left);
  if (peers.joined == 0) {
    why = "no consumer ever connected";
  } else if (session_ && !session_->is_welcome()) {
    why = "no connected consumer answered the hello";
  } else if (session_) {
    const std::size_t leases = supply_->leases();
    why = leases == 0 ? "the consumer has no room for more"
                      : fmt::format("the consumer holds {} leases", leases);
  }
  if (peers.refused > 0) why += fmt::format("; {} connections were refused", peers.refused);
  throw TimeoutError(
      "no consumer took a batch at {} within {}; {}; start one, such as `penstock run "
      "--fake-location zmq-consume:{}endpoint={}`, or wait longer with --timeout",
      net::describe(endpoint_), seconds_text(timeout), why, session_ ? "credit=2," : "",
      endpoint_.text);
}

std::optional<ClockBounds::Estimate> Sender::clock() const noexcept {
  return session_ ? session_->clock() : std::nullopt;
}

}  // namespace penstock::remote
