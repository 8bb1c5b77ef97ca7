// SPDX-License-Identifier: Apache-2.0
// What producers hear from a CreditDesk: credits and returned leases; and how those who have gone
// are found by it.
#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <zmq.hpp>

#include "feeders/credit_desk_state.h"

namespace penstock {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

/// When a connection ends, libzmq says which one to nobody, and a moment early. Sending something
/// to a producer that is gone fails, so for this long each of them is sent its credit again.
constexpr Nanoseconds kProbing = std::chrono::seconds(1),
                      kProbePeriod = std::chrono::milliseconds(10);
/// Returned leases that a producer may leave unread.
constexpr std::size_t kMostReturns = 1 << 16;

template <typename Call>
auto unless_interrupted(const Call& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || zmq_errno() != EINTR) return result;
  }
}

}  // namespace

CreditDesk::Sent CreditDesk::send(const std::string& routing_id, const FramedHeader& header,
                                  MessageFrames payload) {
  void* const socket = socket_.native();
  const auto put = [&](const void* data, std::size_t bytes, bool more) {
    const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
    return unless_interrupted([&] { return zmq_send(socket, data, bytes, flags); }) >= 0;
  };
  if (!put(routing_id.data(), routing_id.size(), true)) {
    return zmq_errno() == EAGAIN ? Sent::later : Sent::gone;
  }
  // Where the first frame goes, the others do.
  const auto first = make_framed_header(header, payload);
  put(first.data(), first.size(), !payload.empty());
  for (std::size_t i = 0; i < payload.size(); ++i) {
    put(payload[i].data(), payload[i].size(), i + 1 < payload.size());
  }
  return Sent::yes;
}

void CreditDesk::send_credit(CreditPeer& peer) {
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

/// With leases out, one that has half of its credits left hears of more when it gets a lease back:
/// one message for both.
bool CreditDesk::has_to_hear(const CreditPeer& peer) const {
  if (peer.owes_credit || !peer.has_more_credit || peer.lent == 0) {
    return peer.owes_credit || peer.has_more_credit;
  }
  const std::uint64_t taken = state_->book.taken(peer.id);
  const std::uint64_t left = peer.told_credit - std::min(taken, peer.told_credit);
  return 2 * left <= static_cast<std::uint64_t>(plan_.credit);
}

void CreditDesk::look() {
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
  // What has not been looked at yet may be of those that seem silent.
  if (std::exchange(state.has_heard_all, false) && state.book.is_short()) let_credits_lapse();
  for (const CreditBook::Producer id : state.book.grant()) {
    state.by_id.at(id)->has_more_credit = true;
    state.by_id.at(id)->quiet_since = now;
  }
  for (const auto& [routing_id, peer] : state.peers) {
    if (!peer->gone && (probes || has_to_hear(*peer))) send_credit(*peer);
  }
}

/// Of who has credits and has sent nothing for long, while others wait for them.
void CreditDesk::let_credits_lapse() {
  const SteadyTime now = std::chrono::steady_clock::now();
  for (const auto& [id, peer] : state_->by_id) {
    if (peer->ended || now - peer->quiet_since < plan_.patience) continue;
    const std::int64_t unused = state_->book.lapse(id);
    if (unused == 0) continue;
    lapsed_.add(unused);
    peer->owes_credit = true;  // so that it hears of it
    if (std::exchange(peer->is_known_as_silent, true)) continue;
    probe_.note(peer->name + " leaves its credits unused while others have none: they get them");
  }
}

void CreditDesk::leave(CreditPeer& peer) {
  peer.gone = true;
  state_->book.remove(peer.id);
  state_->by_id.erase(peer.id);
  cut_short_.add(peer.lent);
  state_->accounts.left(peer.producer);
  if (peer.lent > 0) note_loss(peer);  // before it is read what may be overwritten
}

/// Of one that has gone: what it sent before has been read, or it would have waited for its leases.
void CreditDesk::note_loss(CreditPeer& peer) {
  if (peer.ended || std::exchange(peer.is_known_as_lost, true)) return;
  if (state_->lost.size() < State::kMostLeft) state_->lost.insert(peer.producer);
  probe_.note(peer.name + " has gone without an end, after " + std::to_string(peer.received) +
              " batches" +
              (peer.lent == 0 ? ""
                              : ", of which " + std::to_string(peer.lent) +
                                    " lie in its memory: if it lives, it may overwrite them"));
  lost_.add();
}

void CreditDesk::forget_the_gone() {
  for (const auto& peer : std::exchange(state_->displaced, {})) note_loss(*peer);
  std::erase_if(state_->peers, [this](const auto& entry) {
    if (entry.second->gone) note_loss(*entry.second);
    return entry.second->gone;
  });
}

std::string CreditDesk::silence() const {
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

}  // namespace penstock
