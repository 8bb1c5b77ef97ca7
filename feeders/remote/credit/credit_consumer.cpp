// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/credit/credit_consumer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "feeders/remote/credit/credit_consumer_state.h"
#include "feeders/remote/wire/framed_text.h"

namespace penstock::remote {
namespace {

/// How long a producer may take to send the file descriptor of its pool. Other producers wait.
constexpr Nanoseconds kPoolPatience = std::chrono::seconds(1);
/// How many taken-over connections are kept, because messages of them may still arrive.
constexpr std::size_t kMostDisplaced = 64;

void require_encoding(FramedEncoding wanted, const FramedHeader& header) {
  if (header.encoding == wanted) return;
  throw DataError("its batches are " + std::string(to_string(header.encoding)) + "; expected " +
                  std::string(to_string(wanted)) + "; " +
                  (wanted == FramedEncoding::pixels
                       ? "use zmq-consume:encoded=true, or start the producer without --encoded"
                       : "start the producer as `penstock serve --encoded --credit`, or leave "
                         "zmq-consume:encoded=true out"));
}

/// Lease number of a message that seems to lend memory, even if the rest is invalid.
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

CreditConsumer::CreditConsumer(const CreditPlan& plan, const BatchSpec& spec,
                               const net::Endpoint& endpoint, const ZmqSocketOptions& socket,
                               Probe& probe, net::PeerReports reports)
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

CreditConsumer::~CreditConsumer() = default;

std::size_t CreditConsumer::producers() const noexcept { return state_->by_id.size(); }

std::int64_t CreditConsumer::rejected() const noexcept { return state_->bad.count(); }

bool CreditConsumer::awaits_batches() const noexcept { return state_->book.has_unused(); }

// ---- messages in ------------------------------------------------------------

bool CreditConsumer::receive() {
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

std::optional<CreditConsumer::Arrival> CreditConsumer::next(const std::stop_token& stop) {
  while (!stop.stop_requested() && receive()) {
    std::optional<Arrival> arrival = handle(stop);
    if (arrival) return arrival;
  }
  state_->has_heard_all = true;
  forget_the_gone();
  return std::nullopt;
}

std::optional<CreditConsumer::Arrival> CreditConsumer::handle(const std::stop_token& stop) {
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

FramedMessage CreditConsumer::parse(CreditPeer* peer) {
  try {
    return parse_framed(state_->message.frames());
  } catch (const DataError&) {
    // The sender probably counts this message as a batch. Without this it would wait for the credit
    // forever.
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

/// The producer that sent the current message; null: none that was let in.
CreditPeer* CreditConsumer::sender() {
  const auto found = state_->peers.find(state_->routing_id);
  return found == state_->peers.end() ? nullptr : found->second.get();
}

CreditPeer& CreditConsumer::peer_of_message(const FramedHeader& header) {
  CreditPeer* found = sender();
  if (found == nullptr) found = displaced(header.producer);
  if (found == nullptr) found = taken_over(header.producer);
  if (found == nullptr) {
    throw DataError("it comes from a producer that was not accepted; expected a hello before it");
  }
  CreditPeer& peer = *found;
  if (header.producer == peer.producer) return peer;
  throw DataError("its producer's number is not that of " + peer.name + ", which it comes from");
}

/// When a routing id is taken over, libzmq gives the old connection a new id. Its remaining
/// messages arrive with that new id.
CreditPeer* CreditConsumer::displaced(std::uint64_t producer) {
  std::vector<std::unique_ptr<CreditPeer>>& all = state_->displaced;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& peer) { return peer->producer == producer; });
  if (found == all.end()) return nullptr;
  CreditPeer* const peer = found->get();
  state_->peers[state_->routing_id] = std::move(*found);
  all.erase(found);
  return peer;
}

/// Like displaced(), before the hello of the new connection: libzmq changes the id as soon as it
/// connects. Ids that begin with 0 were drawn by libzmq, and no connection takes them over.
CreditPeer* CreditConsumer::taken_over(std::uint64_t producer) {
  for (const auto& [routing_id, peer] : state_->peers) {
    if (peer->producer == producer && routing_id.front() != '\0') return peer.get();
  }
  return nullptr;
}

void CreditConsumer::let_in(const FramedMessage& message, const std::stop_token& stop) {
  const FramedHeader& header = message.header;
  State& state = *state_;
  if (auto known = state.peers.extract(state.routing_id)) {
    if (!known.mapped()->gone) leave(*known.mapped());  // it restarted unnoticed
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
      leave(*other);  // it came back before we noticed that it had gone
      break;
    }
    if (std::cmp_greater_equal(state.by_id.size(), plan_.producers)) {
      throw DataError("there are " + std::to_string(state.by_id.size()) +
                      " producers already; raise the limit with zmq-consume:max_producers=N");
    }
    if (hello.pool.empty() && plan_.shared_only) {
      throw DataError("it shares no memory, which zmq-consume:shared_memory=true requires");
    }
    // Image files are not read from shared memory: decoders read a file more than once, so it must
    // not change meanwhile.
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
  // Its earlier messages came over a connection that did not end properly.
  for (const auto& [id, other] : state.peers) {
    if (other->gone && other->producer == header.producer) note_loss(*other);
  }
  for (const auto& other : state.displaced) {
    if (other->producer == header.producer) note_loss(*other);
  }
  if (state.lost.erase(header.producer) > 0) {
    probe_.note(peer->name +
                " is back: it had not ended its connection, or was stopped and continues; libzmq "
                "disconnects producers silently if a frame has more than max_message = " +
                std::to_string(max_message_) + " bytes");
  }
  welcomed_.add();
  if (peer->shares_clock) peer->report_clock({}, probe_);
  note_few_leases(*peer);
  state.peers[state.routing_id] = std::move(peer);
}

std::shared_ptr<const ProducerPool> CreditConsumer::map_pool(const FramedHello& hello,
                                                             const std::stop_token& stop) {
  if (!hello.boot.empty() && hello.boot != state_->boot) {
    throw DataError("it shares memory, but runs on another machine");
  }
  const std::shared_ptr<ProducerPool> pool(
      new ProducerPool{{hello.pool, plan_.max_pool, kPoolPatience, stop}, nullptr});
  if (plan_.reader != nullptr)
    pool->pin = plan_.reader->pin(pool->memory.view(0, pool->memory.bytes()));
  pools_.add();
  return pool;
}

/// The ring may hold one lease per slot. Two more are needed: one in transit, one being filled.
void CreditConsumer::note_few_leases(const CreditPeer& peer) {
  if (!peer.pool || peer.pool->pin == nullptr) return;
  const std::size_t batches = peer.pool->batches(spec_.bytes());
  if (batches >= plan_.slots + 2) return;
  probe_.note(peer.name + " shares memory for " + std::to_string(batches) +
              " batches, of which the ring may hold " + std::to_string(plan_.slots) +
              ": it waits for leases while the ring is full; expected " +
              std::to_string(plan_.slots + 2) +
              " or more (penstock serve --hwm), a smaller --prefetch, or zmq-consume:copy=true");
}

CreditConsumer::Arrival CreditConsumer::admit(const FramedMessage& message) {
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
      throw DataError("its image files are in shared memory; expected them in the message");
    }
    if (!peer.pool)
      throw DataError("it is in shared memory, but the hello of its producer named no pool");
    arrival.shared = peer.pool->memory.view(lease.offset, lease.bytes);
    arrival.pool = peer.pool;
    shared_bytes_.add(static_cast<std::int64_t>(lease.bytes));
    return arrival;
  } catch (const DataError&) {
    finish(receipt_of(arrival));
    throw;
  }
}

void CreditConsumer::take_end(const FramedHeader& header) {
  CreditPeer& peer = peer_of_message(header);
  state_->accounts.end(header);
  peer.ended = true;
  if (!peer.gone) state_->book.retire(peer.id);
}

// ---- what happens to batches ------------------------------------------------

BatchReceipt CreditConsumer::receipt_of(const Arrival& arrival) {
  BatchReceipt receipt{.producer = arrival.peer->id, .lease = std::nullopt};
  if (arrival.message.is_shared()) receipt.lease = framed_lease(arrival.message).lease;
  return receipt;
}

void CreditConsumer::finish(const BatchReceipt& receipt) {
  const auto found = state_->by_id.find(receipt.producer);
  if (found == state_->by_id.end()) return;  // it has gone
  state_->book.give_back(receipt.producer);
  if (!receipt.lease) return;
  found->second->returns.push_back(*receipt.lease);
  found->second->owes_credit = true;
}

std::string CreditConsumer::name_of(const Arrival& arrival) {
  return "batch " + std::to_string(arrival.message.header.sequence) + " of " + arrival.peer->name;
}

void CreditConsumer::finish(const Arrival& arrival) {
  state_->bad.accept(state_->message);
  finish(receipt_of(arrival));
  state_->message.clear();
}

bool CreditConsumer::Arrival::is_lendable() const noexcept {
  return pool && pool->pin != nullptr && !peer->gone;
}

CreditConsumer::Loan CreditConsumer::lend(const Arrival& arrival) {
  CreditPeer& peer = *arrival.peer;
  const Loan loan{peer.id, framed_lease(arrival.message).lease};
  state_->bad.accept(state_->message);
  state_->book.give_back(peer.id);
  ++peer.lent;
  state_->message.clear();
  return loan;
}

void CreditConsumer::end_loan(const Loan& loan) {
  const auto found = state_->by_id.find(loan.producer);
  if (found == state_->by_id.end()) return;  // it has gone, and its leases are void
  CreditPeer& peer = *found->second;
  --peer.lent;
  peer.quiet_since = std::chrono::steady_clock::now();  // it may have had no free memory
  peer.returns.push_back(loan.lease);
  peer.owes_credit = true;
}

BatchReceipt CreditConsumer::keep(const Arrival& arrival, ZmqMessage& to) {
  state_->bad.accept(state_->message);
  to.swap(state_->message);
  return receipt_of(arrival);
}

void CreditConsumer::accept(const Arrival& arrival) {
  state_->accounts.accept(arrival.message.header, state_->arrival_ns, arrival.peer->clock());
}

bool CreditConsumer::has_ended() const {
  return state_->accounts.flow() != ProducerAccounts::Flow::coming;
}

void CreditConsumer::summarise(double copy_s) { state_->accounts.summarise(copy_s); }

void CreditConsumer::refuse(const Arrival& arrival, const std::string& why) {
  finish(receipt_of(arrival));
  reject(arrival.peer, why);
}

void CreditConsumer::reject(CreditPeer* peer, const std::string& why) {
  State& state = *state_;
  // Messages of strangers, or with the number of another producer, are in no account.
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

}  // namespace penstock::remote
