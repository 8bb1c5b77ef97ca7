// SPDX-License-Identifier: Apache-2.0
// The outgoing half of CreditConsumer: sends credits and returned leases to producers, and finds
// out which producers have gone.
#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <zmq.hpp>

#include "feeders/remote/credit/credit_consumer_state.h"

namespace penstock::remote {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

/// libzmq does not say which connection ended, and reports the end slightly early. A send to a
/// producer that has gone fails, so for this long each producer gets its credit again.
constexpr Nanoseconds kProbing = std::chrono::seconds(1),
                      kProbePeriod = std::chrono::milliseconds(10);
/// How many returned leases a producer may leave unread.
constexpr std::size_t kMostReturns = 1 << 16;

template <typename Call>
auto unless_interrupted(const Call& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || zmq_errno() != EINTR) return result;
  }
}

}  // namespace

CreditConsumer::Sent CreditConsumer::send(const std::string& routing_id, const FramedHeader& header,
                                          MessageFrames payload) {
  void* const socket = socket_.native();
  const auto put = [&](const void* data, std::size_t bytes, bool more) {
    const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
    return unless_interrupted([&] { return zmq_send(socket, data, bytes, flags); }) >= 0;
  };
  if (!put(routing_id.data(), routing_id.size(), true)) {
    return zmq_errno() == EAGAIN ? Sent::later : Sent::gone;
  }
  // If libzmq accepts the first frame, it accepts the others.
  const auto first = make_framed_header(header, payload);
  put(first.data(), first.size(), !payload.empty());
  for (std::size_t i = 0; i < payload.size(); ++i) {
    put(payload[i].data(), payload[i].size(), i + 1 < payload.size());
  }
  return Sent::yes;
}

void CreditConsumer::send_credit(CreditPeer& peer) {
  const std::uint64_t total = state_->book.granted(peer.id);
  const std::array leases{std::as_bytes(std::span(peer.returns))};
  const FramedHeader credit{.kind = FramedKind::credit,
                            .producer = peer.producer,
                            .sequence = total,
                            .begun_ns = peer.last_sent_ns,
                            .ready_ns = peer.last_arrival_ns,
                            .sent_ns = wall_clock_ns()};
  const Sent sent =
      send(peer.routing_id, credit, std::span(leases).first(peer.returns.empty() ? 0 : 1));
  if (sent == Sent::gone || peer.returns.size() > kMostReturns) {
    leave(peer);
  } else if (sent == Sent::yes) {
    peer.returns.clear();
    peer.owes_credit = peer.has_more_credit = false;
    peer.told_credit = total;
    peer.note_credit(total, credit.sent_ns);
  }
}

/// While leases are out, a producer with more than half of its credits left waits for more until a
/// lease returns. Then one message carries both.
bool CreditConsumer::has_to_hear(const CreditPeer& peer) const {
  if (peer.owes_credit || !peer.has_more_credit || peer.lent == 0) {
    return peer.owes_credit || peer.has_more_credit;
  }
  const std::uint64_t taken = state_->book.taken(peer.id);
  const std::uint64_t left = peer.told_credit - std::min(taken, peer.told_credit);
  return 2 * left <= static_cast<std::uint64_t>(plan_.credit);
}

void CreditConsumer::look() {
  socket_.look();
  State& state = *state_;
  const std::int64_t left = socket_.peers().left;
  const SteadyTime now = std::chrono::steady_clock::now();
  if (left != state.seen_left) {
    state.seen_left = left;
    state.probe_until = now + kProbing;
    state.next_probe = now;
  }
  const bool probes = now < state.probe_until && now >= state.next_probe;
  if (probes) state.next_probe = now + kProbePeriod;
  // Messages that are not read yet may come from producers that seem silent.
  if (std::exchange(state.has_heard_all, false) && state.book.is_short()) let_credits_lapse();
  for (const CreditScheduler::Producer id : state.book.grant()) {
    state.by_id.at(id)->has_more_credit = true;
    state.by_id.at(id)->quiet_since = now;
  }
  for (const auto& [routing_id, peer] : state.peers) {
    if (!peer->gone && (probes || has_to_hear(*peer))) send_credit(*peer);
  }
}

/// Takes credits from producers that sent nothing for a long time while others wait for credits.
void CreditConsumer::let_credits_lapse() {
  const SteadyTime now = std::chrono::steady_clock::now();
  for (const auto& [id, peer] : state_->by_id) {
    if (peer->ended || now - peer->quiet_since < plan_.patience) continue;
    const std::int64_t unused = state_->book.lapse(id);
    if (unused == 0) continue;
    lapsed_.add(unused);
    peer->owes_credit = true;  // tells the producer
    if (std::exchange(peer->is_known_as_silent, true)) continue;
    probe_.note(peer->name +
                " does not use its credits while other producers have none: they get them");
  }
}

void CreditConsumer::leave(CreditPeer& peer) {
  peer.gone = true;
  state_->book.remove(peer.id);
  state_->by_id.erase(peer.id);
  cut_short_.add(peer.lent);
  state_->accounts.left(peer.producer);
  if (peer.lent > 0) note_loss(peer);  // before its memory, which may be overwritten, is read
}

/// Call for a producer that has gone, after its messages were read, or at once if leases are out.
void CreditConsumer::note_loss(CreditPeer& peer) {
  if (peer.ended || std::exchange(peer.is_known_as_lost, true)) return;
  if (state_->lost.size() < State::kMostLeft) state_->lost.insert(peer.producer);
  probe_.note(peer.name + " disconnected without an end message, after " +
              std::to_string(peer.received) + " batches" +
              (peer.lent == 0
                   ? ""
                   : ", of which " + std::to_string(peer.lent) +
                         " are in its memory: if the process still runs, it may overwrite them"));
  lost_.add();
}

void CreditConsumer::forget_the_gone() {
  for (const auto& peer : std::exchange(state_->displaced, {})) note_loss(*peer);
  std::erase_if(state_->peers, [this](const auto& entry) {
    if (entry.second->gone) note_loss(*entry.second);
    return entry.second->gone;
  });
}

std::string CreditConsumer::silence() const {
  const State& state = *state_;
  std::string text;
  if (const std::string refused = state.bad.last(); !refused.empty()) {
    text =
        std::to_string(state.bad.count()) + " messages were refused, the last: " + refused + "; ";
  }
  std::size_t ended = 0;
  for (const auto& [id, peer] : state.by_id) ended += peer->ended ? 1 : 0;
  text += std::to_string(welcomed_.value()) + " producers were welcomed, of which " +
          std::to_string(state.by_id.size()) + " are here, " + std::to_string(ended) +
          " of them at their end";
  return text;
}

}  // namespace penstock::remote
