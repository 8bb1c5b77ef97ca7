// SPDX-License-Identifier: Apache-2.0
#include "feeders/credit_desk.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/wire/framed_text.h"
#include "feeders/credit_desk_state.h"

namespace penstock {
namespace {

/// How long a producer may take to hand out the descriptor of its pool: others wait for it.
constexpr Nanoseconds kPoolPatience = std::chrono::seconds(1);
/// Connections that others took over, of which something may still come.
constexpr std::size_t kMostDisplaced = 64;

void require_encoding(FramedEncoding wanted, const FramedHeader& header) {
  if (header.encoding == wanted) return;
  throw DataError("its batches are " + std::string(to_string(header.encoding)) + ", where " +
                  std::string(to_string(wanted)) + " are expected; " +
                  (wanted == FramedEncoding::pixels
                       ? "say zmq-consume:encoded=true, or start the producer without --encoded"
                       : "start the producer as `penstock serve --encoded --credit`, or leave "
                         "zmq-consume:encoded=true out"));
}

/// Of a message that lends memory, as it seems, whatever else is wrong with it.
std::optional<std::uint64_t> lease_number(MessageFrames frames) {
  const auto header = frames.size() == 2 ? read_framed_header(frames[0]) : std::nullopt;
  if (!header || (header->flags & kFramedShared) == 0 || frames[1].size() != kFramedLeaseBytes) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  std::memcpy(&number, frames[1].data(), sizeof(number));
  return number;
}

}  // namespace

CreditDesk::CreditDesk(const CreditPlan& plan, const BatchSpec& spec, const Endpoint& endpoint,
                       const ZmqSocketOptions& socket, Probe& probe, PeerReports reports)
    : plan_(plan),
      spec_(spec),
      probe_(probe),
      received_(probe.counter("messages_received")),
      bytes_(probe.counter("bytes_received")),
      shared_bytes_(probe.counter("bytes_shared")),
      welcomed_(probe.counter("producers_welcomed")),
      refused_(probe.counter("producers_refused")),
      lost_(probe.counter("producers_lost")),
      pools_(probe.counter("pools_mapped")),
      cut_short_(probe.counter("leases_cut_short")),
      lapsed_(probe.counter("credits_lapsed")),
      endpoint_(endpoint.text),
      max_message_(socket.max_message),
      socket_(endpoint, socket, std::move(reports)),
      state_(std::make_unique<State>(plan, spec, probe)) {
  PENSTOCK_ASSERT(socket.role == ZmqSocketOptions::Role::router);
}

CreditDesk::~CreditDesk() = default;

std::size_t CreditDesk::producers() const noexcept { return state_->by_id.size(); }

std::int64_t CreditDesk::rejected() const noexcept { return state_->bad.count(); }

bool CreditDesk::awaits_batches() const noexcept { return state_->book.has_unused(); }

// ---- messages in ------------------------------------------------------------

bool CreditDesk::receive() {
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  zmq::message_t sender;
  if (!socket.recv(sender, zmq::recv_flags::dontwait)) return false;
  State& state = *state_;
  state.arrival_ns = wall_clock_ns();
  state.routing_id = sender.to_string();
  state.message.clear();
  if (sender.more() && !state.message.receive(socket_.native())) return false;
  bytes_.add(state.message.bytes());
  received_.add();
  state.message.number = received_.value();
  return true;
}

std::optional<CreditDesk::Arrival> CreditDesk::next(const std::stop_token& stop) {
  while (!stop.stop_requested() && receive()) {
    std::optional<Arrival> arrival = handle(stop);
    if (arrival) return arrival;
  }
  state_->has_heard_all = true;
  forget_the_gone();
  return std::nullopt;
}

std::optional<CreditDesk::Arrival> CreditDesk::handle(const std::stop_token& stop) {
  try {
    const FramedMessage message = parse(sender());
    switch (message.header.kind) {
      case FramedKind::hello:
        let_in(message, stop);
        return std::nullopt;
      case FramedKind::batch:
        return admit(message);
      case FramedKind::end:
        take_end(message.header);
        return std::nullopt;
      default:
        throw DataError("a " + std::string(to_string(message.header.kind)) +
                        ", which consumers send; expected a hello, a batch or an end");
    }
  } catch (const DataError& error) {
    if (!stop.stop_requested()) reject(sender(), error.what());
  }
  return std::nullopt;
}

FramedMessage CreditDesk::parse(CreditPeer* peer) {
  try {
    return parse_framed(state_->message.frames());
  } catch (const DataError&) {
    // Whoever sent it takes it for a batch, most likely, and would wait for that credit for ever.
    if (peer != nullptr && !peer->gone && state_->book.take(peer->id)) {
      state_->book.give_back(peer->id);
      if (const auto lease = lease_number(state_->message.kept_frames())) {
        peer->returns.push_back(*lease);
        peer->owes_credit = true;
      }
    }
    throw;
  }
}

/// Of the message at hand; null: nobody that was let in.
CreditPeer* CreditDesk::sender() {
  const auto found = state_->peers.find(state_->routing_id);
  return found == state_->peers.end() ? nullptr : found->second.get();
}

CreditPeer& CreditDesk::peer_of_message(const FramedHeader& header) {
  CreditPeer* found = sender();
  if (found == nullptr) found = displaced(header.producer);
  if (found == nullptr) found = taken_over(header.producer);
  if (found == nullptr) {
    throw DataError("it comes from a producer that was not let in; expected a hello before it");
  }
  CreditPeer& peer = *found;
  if (header.producer == peer.producer) return peer;
  throw DataError("its producer's number is not that of " + peer.name + ", which it comes from");
}

/// What is left of a connection whose routing id another has taken over comes by an id that libzmq
/// drew for it.
CreditPeer* CreditDesk::displaced(std::uint64_t producer) {
  std::vector<std::unique_ptr<CreditPeer>>& all = state_->displaced;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& peer) { return peer->producer == producer; });
  if (found == all.end()) return nullptr;
  CreditPeer* const peer = found->get();
  state_->peers[state_->routing_id] = std::move(*found);
  all.erase(found);
  return peer;
}

/// The same before the hello of who took it over: libzmq changes the id as soon as that one
/// connects. Ids that begin with 0 are libzmq's own, which nobody takes over.
CreditPeer* CreditDesk::taken_over(std::uint64_t producer) {
  for (const auto& [routing_id, peer] : state_->peers) {
    if (peer->producer == producer && routing_id.front() != '\0') return peer.get();
  }
  return nullptr;
}

void CreditDesk::let_in(const FramedMessage& message, const std::stop_token& stop) {
  const FramedHeader& header = message.header;
  State& state = *state_;
  if (auto known = state.peers.extract(state.routing_id)) {
    if (!known.mapped()->gone) leave(*known.mapped());  // it began anew before it was missed
    if (state.displaced.size() == kMostDisplaced) {
      note_loss(*state.displaced.front());
      state.displaced.erase(state.displaced.begin());
    }
    state.displaced.push_back(std::move(known.mapped()));
  }
  auto peer = std::make_unique<CreditPeer>();
  try {
    const FramedHello hello = parse_framed_hello(message);
    peer->name = describe(hello, header.producer);
    require_encoding(plan_.encoding, header);
    check_framed_shape(header, spec_);
    for (const auto& [id, other] : state.by_id) {
      if (other->producer != header.producer) continue;
      leave(*other);  // it came back before it was missed
      break;
    }
    if (std::cmp_greater_equal(state.by_id.size(), plan_.producers)) {
      throw DataError("there are " + std::to_string(state.by_id.size()) +
                      " producers already; let in more with zmq-consume:max_producers=N");
    }
    if (hello.pool.empty() && plan_.shared_only) {
      throw DataError("it shares no memory, and zmq-consume:shared_memory=true wants that");
    }
    // Decoders read a file more than once: it must not change meanwhile.
    const bool maps = plan_.encoding == FramedEncoding::pixels;
    if (maps && !hello.pool.empty()) peer->pool = map_pool(hello, stop);
    state.accounts.greet(message);
    peer->shares_clock = !hello.boot.empty() && hello.boot == state.boot;
  } catch (const DataError& error) {
    const std::string text = write_framed_refusal(error.what());
    const std::array frames{std::as_bytes(std::span(text))};
    send(state.routing_id, {.kind = FramedKind::refusal, .producer = header.producer}, frames);
    refused_.add();
    throw;
  }
  const std::string text = write_framed_welcome({.images = spec_.images,
                                                 .height = spec_.image.height,
                                                 .width = spec_.image.width,
                                                 .channels = spec_.image.channels,
                                                 .classes = spec_.classes,
                                                 .boot = state.boot});
  const std::array frames{std::as_bytes(std::span(text))};
  const FramedHeader welcome{.kind = FramedKind::welcome,
                             .producer = header.producer,
                             .begun_ns = header.sent_ns,
                             .ready_ns = state.arrival_ns,
                             .sent_ns = wall_clock_ns()};
  if (send(state.routing_id, welcome, frames) != Sent::yes) return;  // it has gone again
  peer->id = ++state.ids;
  peer->routing_id = state.routing_id;
  peer->producer = header.producer;
  state.by_id[peer->id] = peer.get();
  state.book.add(peer->id);
  // What came of it before is of a connection that it had not ended.
  for (const auto& [id, other] : state.peers) {
    if (other->gone && other->producer == header.producer) note_loss(*other);
  }
  for (const auto& other : state.displaced) {
    if (other->producer == header.producer) note_loss(*other);
  }
  if (state.lost.erase(header.producer) > 0) {
    probe_.note(
        peer->name +
        " is back: it had not ended its connection, or goes on after a stop; libzmq cuts off "
        "those that send more than max_message = " +
        std::to_string(max_message_) + " bytes in a frame, and does not say so");
  }
  welcomed_.add();
  if (peer->shares_clock) peer->report_clock({}, probe_);
  note_few_leases(*peer);
  state.peers[state.routing_id] = std::move(peer);
}

std::shared_ptr<const ProducerPool> CreditDesk::map_pool(const FramedHello& hello,
                                                         const std::stop_token& stop) {
  if (!hello.boot.empty() && hello.boot != state_->boot) {
    throw DataError("it shares memory, and runs on another machine");
  }
  const std::shared_ptr<ProducerPool> pool(
      new ProducerPool{{hello.pool, plan_.max_pool, kPoolPatience, stop}, nullptr});
  if (plan_.reader != nullptr)
    pool->pin = plan_.reader->pin(pool->memory.view(0, pool->memory.bytes()));
  pools_.add();
  return pool;
}

/// The ring may hold a lease in each slot; beside them one is on its way and one is being filled.
void CreditDesk::note_few_leases(const CreditPeer& peer) {
  if (!peer.pool || peer.pool->pin == nullptr) return;
  const std::size_t batches = peer.pool->batches(spec_.bytes());
  if (batches >= plan_.slots + 2) return;
  probe_.note(peer.name + " shares memory for " + std::to_string(batches) +
              " batches, of which the ring may hold " + std::to_string(plan_.slots) +
              ": it waits for leases while the ring is full; expected " +
              std::to_string(plan_.slots + 2) +
              " or more (penstock serve --hwm), a smaller --prefetch, or zmq-consume:copy=true");
}

CreditDesk::Arrival CreditDesk::admit(const FramedMessage& message) {
  const FramedHeader& header = message.header;
  CreditPeer& peer = peer_of_message(header);
  if (!peer.gone && !state_->book.take(peer.id)) {
    throw DataError("batch " + std::to_string(header.sequence) + " of " + peer.name +
                    ", for which it had no credit");
  }
  Arrival arrival{.peer = &peer, .message = message, .shared = {}, .pool = nullptr};
  peer.quiet_since = std::chrono::steady_clock::now();
  peer.note_batch(header, state_->arrival_ns, probe_);
  try {
    require_encoding(plan_.encoding, header);
    check_framed_shape(header, spec_);
    if (!message.is_shared()) return arrival;
    const FramedLease lease = framed_lease(message);
    if (plan_.encoding != FramedEncoding::pixels) {
      throw DataError("its image files lie in shared memory; expected them in the message");
    }
    if (!peer.pool) throw DataError("it lies in shared memory, and its hello named no pool");
    arrival.shared = peer.pool->memory.view(lease.offset, lease.bytes);
    arrival.pool = peer.pool;
    shared_bytes_.add(static_cast<std::int64_t>(lease.bytes));
    return arrival;
  } catch (const DataError&) {
    finish(debt_of(arrival));
    throw;
  }
}

void CreditDesk::take_end(const FramedHeader& header) {
  CreditPeer& peer = peer_of_message(header);
  state_->accounts.end(header);
  peer.ended = true;
  if (!peer.gone) state_->book.retire(peer.id);
}

// ---- what becomes of them ---------------------------------------------------

CreditDebt CreditDesk::debt_of(const Arrival& arrival) {
  CreditDebt debt{.producer = arrival.peer->id, .lease = std::nullopt};
  if (arrival.message.is_shared()) debt.lease = framed_lease(arrival.message).lease;
  return debt;
}

void CreditDesk::finish(const CreditDebt& debt) {
  const auto found = state_->by_id.find(debt.producer);
  if (found == state_->by_id.end()) return;  // it has gone
  state_->book.give_back(debt.producer);
  if (!debt.lease) return;
  found->second->returns.push_back(*debt.lease);
  found->second->owes_credit = true;
}

std::string CreditDesk::name_of(const Arrival& arrival) {
  return "batch " + std::to_string(arrival.message.header.sequence) + " of " + arrival.peer->name;
}

void CreditDesk::finish(const Arrival& arrival) {
  state_->bad.accept(state_->message);
  finish(debt_of(arrival));
  state_->message.clear();
}

bool CreditDesk::Arrival::is_lendable() const noexcept {
  return pool && pool->pin != nullptr && !peer->gone;
}

CreditDesk::Loan CreditDesk::lend(const Arrival& arrival) {
  CreditPeer& peer = *arrival.peer;
  const Loan loan{peer.id, framed_lease(arrival.message).lease};
  state_->bad.accept(state_->message);
  state_->book.give_back(peer.id);
  ++peer.lent;
  state_->message.clear();
  return loan;
}

void CreditDesk::end_loan(const Loan& loan) {
  const auto found = state_->by_id.find(loan.producer);
  if (found == state_->by_id.end()) return;  // it has gone, and its leases with it
  CreditPeer& peer = *found->second;
  --peer.lent;
  peer.quiet_since = std::chrono::steady_clock::now();  // it may have had no memory to send in
  peer.returns.push_back(loan.lease);
  peer.owes_credit = true;
}

CreditDebt CreditDesk::keep(const Arrival& arrival, ZmqMessage& to) {
  state_->bad.accept(state_->message);
  to.swap(state_->message);
  return debt_of(arrival);
}

void CreditDesk::accept(const Arrival& arrival) {
  state_->accounts.accept(arrival.message.header, state_->arrival_ns, arrival.peer->clock());
}

bool CreditDesk::has_ended() const {
  return state_->accounts.flow() != ProducerLedger::Flow::coming;
}

void CreditDesk::summarise(double copy_s) { state_->accounts.summarise(copy_s); }

void CreditDesk::refuse(const Arrival& arrival, const std::string& why) {
  finish(debt_of(arrival));
  reject(arrival.peer, why);
}

void CreditDesk::reject(CreditPeer* peer, const std::string& why) {
  State& state = *state_;
  // Strangers, and who passes for another, are in no accounts.
  const MessageFrames frames = state.message.kept_frames();
  const auto header = frames.empty() ? std::nullopt : read_framed_header(frames[0]);
  if (peer != nullptr && header && header->producer == peer->producer) {
    state.accounts.reject(*header, why);
  }
  const bool is_named = peer == nullptr || why.find(peer->name) != why.npos;
  state.bad.reject(state.message, endpoint_, is_named ? why : peer->name + ": " + why);
  for (const BadMessages::Offender& offender : state.bad.take_offenders()) {
    if (peer != nullptr && !peer->gone) leave(*peer);
    if (socket_.cut_off(offender.sender)) state.bad.note_cut_off(offender);
  }
}

}  // namespace penstock
