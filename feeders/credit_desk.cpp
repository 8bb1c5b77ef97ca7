// SPDX-License-Identifier: Apache-2.0
#include "feeders/credit_desk.h"

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
/// Numbers of batches are lower, so that sums of what is missing stay numbers.
constexpr std::uint64_t kMaxSequence = std::uint64_t{1} << 48;

void require_pixels(const FramedHeader& header) {
  if (header.encoding == FramedEncoding::pixels) return;
  throw DataError("its batches are " + std::string(to_string(header.encoding)) +
                  "; with credit, pixels are expected");
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
      missing_(probe.counter("batches_missing")),
      pools_(probe.counter("pools_mapped")),
      endpoint_(endpoint.text),
      delivery_(probe),
      socket_(endpoint, socket, std::move(reports)),
      state_(std::make_unique<State>(plan, probe)) {
  PENSTOCK_ASSERT(socket.role == ZmqSocketOptions::Role::router);
}

CreditDesk::~CreditDesk() = default;

std::size_t CreditDesk::producers() const noexcept { return state_->by_id.size(); }

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
  forget_the_gone();
  return std::nullopt;
}

std::optional<CreditDesk::Arrival> CreditDesk::handle(const std::stop_token& stop) {
  const auto found = state_->peers.find(state_->routing_id);
  CreditPeer* const peer = found == state_->peers.end() ? nullptr : found->second.get();
  try {
    const FramedMessage message = parse(peer);
    switch (message.header.kind) {
      case FramedKind::hello:
        let_in(message, stop);
        return std::nullopt;
      case FramedKind::batch:
        return admit(message);
      case FramedKind::end:
        note_end(message.header);
        return std::nullopt;
      default:
        throw DataError("a " + std::string(to_string(message.header.kind)) +
                        ", which consumers send; expected a hello, a batch or an end");
    }
  } catch (const DataError& error) {
    if (!stop.stop_requested()) reject(peer, error.what());
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

CreditPeer& CreditDesk::peer_of_message(const FramedHeader& header) {
  const auto found = state_->peers.find(state_->routing_id);
  if (found == state_->peers.end()) {
    throw DataError("it comes from a producer that was not let in; expected a hello before it");
  }
  CreditPeer& peer = *found->second;
  if (header.producer == peer.producer) return peer;
  throw DataError("its producer's number is not that of " + peer.name + ", which it comes from");
}

void CreditDesk::let_in(const FramedMessage& message, const std::stop_token& stop) {
  const FramedHeader& header = message.header;
  State& state = *state_;
  if (state.peers.contains(state.routing_id)) throw DataError("a second hello");
  auto peer = std::make_unique<CreditPeer>();
  try {
    const FramedHello hello = parse_framed_hello(message);
    peer->name = describe(hello, header.producer);
    require_pixels(header);
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
    if (!hello.pool.empty()) peer->pool = map_pool(hello.pool, hello.boot, stop);
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
  // One that comes back goes on with its numbers.
  if (const auto left = state.left_at.extract(header.producer)) {
    peer->next_sequence = left.mapped();
  }
  state.by_id[peer->id] = peer.get();
  state.book.add(peer->id);
  welcomed_.add();
  if (peer->shares_clock) peer->report_clock({}, probe_);
  state.peers[state.routing_id] = std::move(peer);
}

std::shared_ptr<const MappedPool> CreditDesk::map_pool(const std::string& pool,
                                                       const std::string& boot,
                                                       const std::stop_token& stop) {
  if (!boot.empty() && boot != state_->boot) {
    throw DataError("it shares memory, and runs on another machine");
  }
  auto mapped = std::make_shared<const MappedPool>(pool, plan_.max_pool, kPoolPatience, stop);
  pools_.add();
  return mapped;
}

CreditDesk::Arrival CreditDesk::admit(const FramedMessage& message) {
  const FramedHeader& header = message.header;
  CreditPeer& peer = peer_of_message(header);
  if (!peer.gone && !state_->book.take(peer.id)) {
    throw DataError("batch " + std::to_string(header.sequence) + " of " + peer.name +
                    ", for which it had no credit");
  }
  Arrival arrival{.peer = &peer, .message = message, .shared = {}, .pool = nullptr};
  peer.note_batch(header, state_->arrival_ns, probe_);
  delivery_.add(header, state_->arrival_ns, peer.clock());
  try {
    if (header.sequence < peer.next_sequence || header.sequence > kMaxSequence) {
      throw DataError("its number is " + std::to_string(header.sequence) + "; expected " +
                      std::to_string(peer.next_sequence) + " or more");
    }
    missing_.add(static_cast<std::int64_t>(header.sequence - peer.next_sequence));
    peer.next_sequence = header.sequence + 1;
    require_pixels(header);
    check_framed_shape(header, spec_);
    if (!message.is_shared()) return arrival;
    const FramedLease lease = framed_lease(message);
    if (!peer.pool) throw DataError("it lies in shared memory, and its hello named no pool");
    arrival.shared = peer.pool->view(lease.offset, lease.bytes);
    arrival.pool = peer.pool;
    shared_bytes_.add(static_cast<std::int64_t>(lease.bytes));
    return arrival;
  } catch (const DataError&) {
    give_back(arrival);
    throw;
  }
}

void CreditDesk::note_end(const FramedHeader& header) {
  CreditPeer& peer = peer_of_message(header);
  if (header.sequence < peer.next_sequence || header.sequence > kMaxSequence) {
    throw DataError("its end says that there were " + std::to_string(header.sequence) +
                    " batches; number " + std::to_string(peer.next_sequence) + " is the next");
  }
  missing_.add(static_cast<std::int64_t>(header.sequence - peer.next_sequence));
  peer.next_sequence = header.sequence;
  peer.ended = true;
  if (!peer.gone) state_->book.retire(peer.id);
}

// ---- what becomes of them ---------------------------------------------------

void CreditDesk::give_back(const Arrival& arrival) {
  CreditPeer& peer = *arrival.peer;
  if (peer.gone) return;
  state_->book.give_back(peer.id);
  if (!arrival.message.is_shared()) return;
  peer.returns.push_back(framed_lease(arrival.message).lease);
  peer.owes_credit = true;
}

void CreditDesk::finish(const Arrival& arrival) {
  state_->bad.accept(state_->message);
  give_back(arrival);
  state_->message.clear();
}

void CreditDesk::refuse(const Arrival& arrival, const std::string& why) {
  give_back(arrival);
  reject(arrival.peer, why);
}

void CreditDesk::reject(CreditPeer* peer, const std::string& why) {
  State& state = *state_;
  state.bad.reject(state.message, endpoint_, peer != nullptr ? peer->name + ": " + why : why);
  for (const BadMessages::Offender& offender : state.bad.take_offenders()) {
    if (peer != nullptr && !peer->gone) leave(*peer);
    if (socket_.cut_off(offender.sender)) state.bad.note_cut_off(offender);
  }
}

}  // namespace penstock
