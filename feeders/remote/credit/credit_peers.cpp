// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/credit/credit_peers.h"

#include <fmt/format.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

/// Number of producers whose clocks appear among the facts of a run.
constexpr CreditScheduler::Producer kMostClocks = 8;
/// How many taken-over connections are kept, because messages of them may still arrive.
constexpr std::size_t kMostDisplaced = 64;
/// libzmq does not say which connection ended, and reports the end slightly early. A send to a
/// producer that has gone fails, so for this long each producer gets its credit again.
constexpr Nanoseconds kProbing = std::chrono::seconds(1),
                      kProbePeriod = std::chrono::milliseconds(10);
/// How many returned leases a producer may leave unread.
constexpr std::size_t kMostReturns = 1 << 16;

}  // namespace

void CreditPeer::note_batch(const FramedHeader& header, std::int64_t arrival_ns, Probe& probe) {
  last_sent_ns = header.sent_ns;
  last_arrival_ns = arrival_ns;
  const std::uint64_t number = received++;
  // The batch was sent after the first credit that allowed it, and before it arrived.
  while (!permits_.empty() && permits_.front().total <= number) permits_.pop_front();
  if (shares_clock || id > kMostClocks) return;
  if (!permits_.empty()) clock_.after(header.sent_ns, permits_.front().sent_ns);
  clock_.before(header.sent_ns, arrival_ns);
  const std::optional<ClockBounds::Estimate> estimate = clock_.estimate();
  // Each fact takes a lock, so small improvements are not reported.
  const bool better =
      estimate && (reported_bound_ns_ == 0 || estimate->bound_ns < 0.8 * reported_bound_ns_);
  if (!better) return;
  reported_bound_ns_ = estimate->bound_ns;
  report_clock(*estimate, probe);
}

void CreditPeer::note_credit(std::uint64_t total, std::int64_t sent_ns) {
  if (permits_.empty() || permits_.back().total < total) permits_.push_back({total, sent_ns});
}

std::optional<ClockBounds::Estimate> CreditPeer::clock() const noexcept {
  return shares_clock ? ClockBounds::Estimate{} : clock_.estimate();
}

void CreditPeer::report_clock(const ClockBounds::Estimate& estimate, Probe& probe) const {
  if (id > kMostClocks) return;
  const std::string fact = fmt::format("producer_{}_clock_", id - 1);
  probe.fact(fact + "offset_us", 1e-3 * estimate.offset_ns);
  probe.fact(fact + "bound_us", 1e-3 * estimate.bound_ns);
}

CreditPeers::CreditPeers(const Limits& limits, ZmqSocket& socket, FramedIntake& accounts,
                         Probe& probe)
    : limits_(limits),
      socket_(socket),
      accounts_(accounts),
      probe_(probe),
      welcomed_(probe.counter("producers_welcomed")),
      lost_(probe.counter("producers_lost")),
      cut_short_(probe.counter("leases_cut_short")),
      lapsed_(probe.counter("credits_lapsed")),
      scheduler_(limits.credit, limits.together) {}

// ---- who is here ------------------------------------------------------------

CreditPeer* CreditPeers::at(const std::string& routing_id) {
  const auto found = peers_.find(routing_id);
  return found == peers_.end() ? nullptr : found->second.get();
}

CreditPeer& CreditPeers::sender_of(const FramedHeader& header, const std::string& routing_id) {
  CreditPeer* found = at(routing_id);
  if (found == nullptr) found = displaced(header.producer, routing_id);
  if (found == nullptr) found = taken_over(header.producer);
  if (found == nullptr) {
    throw DataError("it comes from a producer that was not accepted; expected a hello before it");
  }
  if (header.producer == found->producer) return *found;
  throw DataError("its producer's number is not that of {}, which it comes from", found->name);
}

/// When a routing id is taken over, libzmq gives the old connection a new id. Its remaining
/// messages arrive with that new id.
CreditPeer* CreditPeers::displaced(std::uint64_t producer, const std::string& routing_id) {
  const auto found = std::find_if(displaced_.begin(), displaced_.end(),
                                  [&](const auto& peer) { return peer->producer == producer; });
  if (found == displaced_.end()) return nullptr;
  CreditPeer* const peer = found->get();
  peers_[routing_id] = std::move(*found);
  displaced_.erase(found);
  return peer;
}

/// Like displaced(), before the hello of the new connection: libzmq changes the id as soon as it
/// connects. Ids that begin with 0 were drawn by libzmq, and no connection takes them over.
CreditPeer* CreditPeers::taken_over(std::uint64_t producer) {
  for (const auto& [routing_id, peer] : peers_) {
    if (peer->producer == producer && routing_id.front() != '\0') return peer.get();
  }
  return nullptr;
}

void CreditPeers::end_previous(const std::string& routing_id) {
  auto known = peers_.extract(routing_id);
  if (!known) return;
  if (!known.mapped()->gone) leave(*known.mapped());  // it restarted unnoticed
  if (displaced_.size() == kMostDisplaced) {
    note_loss(*displaced_.front());
    displaced_.erase(displaced_.begin());
  }
  displaced_.push_back(std::move(known.mapped()));
}

void CreditPeers::remove_if_connected(std::uint64_t producer) {
  for (const auto& [id, peer] : by_id_) {
    if (peer->producer != producer) continue;
    leave(*peer);
    return;
  }
}

void CreditPeers::add(std::unique_ptr<CreditPeer> peer) {
  peer->id = ++ids_;
  by_id_[peer->id] = peer.get();
  scheduler_.add(peer->id);
  // Its earlier messages came over a connection that did not end properly.
  for (const auto& [routing_id, other] : peers_) {
    if (other->gone && other->producer == peer->producer) note_loss(*other);
  }
  for (const auto& other : displaced_) {
    if (other->producer == peer->producer) note_loss(*other);
  }
  if (lost_producers_.erase(peer->producer) > 0) {
    probe_.note(fmt::format(
        "{} is back: it had not ended its connection, or was stopped and continues; libzmq "
        "disconnects producers silently if a frame has more than max_message = {} bytes",
        peer->name, limits_.max_message));
  }
  welcomed_.add();
  if (peer->shares_clock) peer->report_clock({}, probe_);
  const std::string routing_id = peer->routing_id;
  peers_[routing_id] = std::move(peer);
}

void CreditPeers::leave(CreditPeer& peer) {
  peer.gone = true;
  scheduler_.remove(peer.id);
  by_id_.erase(peer.id);
  cut_short_.add(peer.lent);
  accounts_.left(peer.producer);
  if (peer.lent > 0) note_loss(peer);  // before its memory, which may be overwritten, is read
}

/// Call for a producer that has gone, after its messages were read, or at once if leases are out.
void CreditPeers::note_loss(CreditPeer& peer) {
  if (peer.ended || std::exchange(peer.is_known_as_lost, true)) return;
  if (lost_producers_.size() < kMostLeft) lost_producers_.insert(peer.producer);
  probe_.note(fmt::format(
      "{} disconnected without an end message, after {} batches{}", peer.name, peer.received,
      peer.lent == 0
          ? ""
          : fmt::format(
                ", of which {} are in its memory: if the process still runs, it may overwrite them",
                peer.lent)));
  lost_.add();
}

void CreditPeers::remove_disconnected() {
  has_read_all_ = true;
  for (const auto& peer : std::exchange(displaced_, {})) note_loss(*peer);
  std::erase_if(peers_, [this](const auto& entry) {
    if (entry.second->gone) note_loss(*entry.second);
    return entry.second->gone;
  });
}

std::string CreditPeers::describe() const {
  const auto ended = std::count_if(by_id_.begin(), by_id_.end(),
                                   [](const auto& entry) { return entry.second->ended; });
  return fmt::format("{} producers were welcomed, of which {} are here, {} of them at their end",
                     welcomed_.value(), by_id_.size(), ended);
}

// ---- what is owed -----------------------------------------------------------

BatchReceipt CreditPeers::lend(CreditPeer& peer, std::uint64_t lease) {
  scheduler_.give_back(peer.id);
  ++peer.lent;
  return {.producer = peer.id, .lease = lease, .owes_room = false};
}

void CreditPeers::give_back(const BatchReceipt& receipt) {
  const auto found = by_id_.find(receipt.producer);
  if (found == by_id_.end()) return;  // it has gone, and its leases are void
  CreditPeer& peer = *found->second;
  if (receipt.owes_room) {
    scheduler_.give_back(peer.id);
  } else {
    --peer.lent;
    peer.quiet_since = std::chrono::steady_clock::now();  // it may have had no free memory
  }
  if (!receipt.lease) return;
  peer.returns.push_back(*receipt.lease);
  peer.owes_credit = true;
}

bool CreditPeers::can_spare_leases(std::size_t batch_bytes) const {
  return std::ranges::all_of(by_id_, [&](const auto& entry) {
    const CreditPeer& peer = *entry.second;
    return peer.lent == 0 ||
           static_cast<std::size_t>(peer.lent) + 2 <= peer.pool->batches(batch_bytes);
  });
}

void CreditPeers::end(CreditPeer& peer) {
  peer.ended = true;
  if (!peer.gone) scheduler_.retire(peer.id);
}

// ---- messages to producers ---------------------------------------------------

CreditPeers::Sent CreditPeers::send(const std::string& routing_id, const FramedHeader& header,
                                    MessageFrames payload) {
  void* const socket = socket_.native();
  const auto put = [&](const void* data, std::size_t bytes, bool more) {
    const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
    while (zmq_send(socket, data, bytes, flags) < 0) {
      if (zmq_errno() != EINTR) return false;
    }
    return true;
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

void CreditPeers::send_credit(CreditPeer& peer) {
  const std::uint64_t total = scheduler_.granted(peer.id);
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
bool CreditPeers::has_to_hear(const CreditPeer& peer) const {
  if (peer.owes_credit || !peer.has_more_credit || peer.lent == 0) {
    return peer.owes_credit || peer.has_more_credit;
  }
  const std::uint64_t taken = scheduler_.taken(peer.id);
  const std::uint64_t left = peer.told_credit - std::min(taken, peer.told_credit);
  return 2 * left <= static_cast<std::uint64_t>(limits_.credit);
}

void CreditPeers::look() {
  socket_.look();
  const std::int64_t left = socket_.peers().left;
  const SteadyTime now = std::chrono::steady_clock::now();
  if (left != seen_left_) {
    seen_left_ = left;
    probe_until_ = now + kProbing;
    next_probe_ = now;
  }
  const bool probes = now < probe_until_ && now >= next_probe_;
  if (probes) next_probe_ = now + kProbePeriod;
  // Messages that are not read yet may come from producers that seem silent.
  if (std::exchange(has_read_all_, false) && scheduler_.is_short()) let_credits_lapse();
  for (const CreditScheduler::Producer id : scheduler_.grant()) {
    by_id_.at(id)->has_more_credit = true;
    by_id_.at(id)->quiet_since = now;
  }
  for (const auto& [routing_id, peer] : peers_) {
    if (!peer->gone && (probes || has_to_hear(*peer))) send_credit(*peer);
  }
}

/// Takes credits from producers that sent nothing for a long time while others wait for credits.
void CreditPeers::let_credits_lapse() {
  const SteadyTime now = std::chrono::steady_clock::now();
  for (const auto& [id, peer] : by_id_) {
    if (peer->ended || now - peer->quiet_since < limits_.patience) continue;
    const std::int64_t unused = scheduler_.lapse(id);
    if (unused == 0) continue;
    lapsed_.add(unused);
    peer->owes_credit = true;  // tells the producer
    if (std::exchange(peer->is_known_as_silent, true)) continue;
    probe_.note(peer->name +
                " does not use its credits while other producers have none: they get them");
  }
}

}  // namespace penstock::remote
