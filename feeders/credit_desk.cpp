// SPDX-License-Identifier: Apache-2.0
#include "feeders/credit_desk.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/wire/framed_text.h"
#include "feeders/credit_book.h"
#include "feeders/credit_peer.h"

namespace penstock {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

/// Bad messages in a row for which a producer is cut off, where bad ones are skipped.
constexpr int kMostBadInARow = 8;
/// How long a producer may take to hand out the descriptor of its pool: others wait for it.
constexpr Nanoseconds kPoolPatience = std::chrono::seconds(1);
/// When a connection ends, libzmq says which one to nobody, and a moment early. Sending something
/// to a producer that is gone fails, so for this long each of them is sent its credit again.
constexpr Nanoseconds kProbing = std::chrono::seconds(1),
                      kProbePeriod = std::chrono::milliseconds(10);
/// Returned leases that a producer may leave unread.
constexpr std::size_t kMostReturns = 1 << 16;
/// Producers that are remembered when they have gone without an end.
constexpr std::size_t kMostLeft = 1 << 16;
/// Numbers of batches are lower, so that sums of what is missing stay numbers.
constexpr std::uint64_t kMaxSequence = std::uint64_t{1} << 48;

template <typename Call>
auto unless_interrupted(const Call& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || zmq_errno() != EINTR) return result;
  }
}

void require_pixels(const FramedHeader& header) {
  if (header.encoding == FramedEncoding::pixels) return;
  throw DataError("its batches are " + std::string(to_string(header.encoding)) +
                  "; with credit, pixels are expected");
}

}  // namespace

struct CreditDesk::State {
  explicit State(const CreditPlan& plan) : book(plan.credit, plan.together) {}

  std::map<std::string, std::unique_ptr<CreditPeer>> peers;  // by routing id
  std::map<CreditBook::Producer, CreditPeer*> by_id;
  CreditBook::Producer ids = 0;
  CreditBook book;
  const std::string boot = boot_id();

  // The message that came last, without its routing id.
  std::string routing_id;
  std::array<zmq::message_t, 1 + kMaxFramedPayload> frames;
  std::array<std::span<const std::byte>, 1 + kMaxFramedPayload> views;
  std::size_t count = 0;  // may be more than there is room for
  std::int64_t arrival_ns = 0;

  std::map<std::uint64_t, std::uint64_t> left_at;  // next numbers of producers that have gone
  std::int64_t seen_left = 0;
  SteadyTime probe_until{}, next_probe{};
  std::map<int, int> bad_in_a_row;  // of each connection
  std::string last_rejection;
};

CreditDesk::CreditDesk(const CreditPlan& plan, const BatchSpec& spec, const Endpoint& endpoint,
                       const ZmqSocketOptions& socket, Probe& probe, PeerReports reports)
    : plan_(plan),
      spec_(spec),
      probe_(probe),
      received_(probe.counter("messages_received")),
      rejected_(probe.counter("messages_rejected")),
      bytes_(probe.counter("bytes_received")),
      shared_bytes_(probe.counter("bytes_shared")),
      cut_off_(probe.counter("producers_cut_off")),
      welcomed_(probe.counter("producers_welcomed")),
      refused_(probe.counter("producers_refused")),
      lost_(probe.counter("producers_lost")),
      missing_(probe.counter("batches_missing")),
      pools_(probe.counter("pools_mapped")),
      socket_(endpoint, socket, std::move(reports)),
      state_(std::make_unique<State>(plan)) {
  PENSTOCK_ASSERT(socket.role == ZmqSocketOptions::Role::router);
}

CreditDesk::~CreditDesk() = default;

std::size_t CreditDesk::producers() const noexcept { return state_->by_id.size(); }

// ---- messages in ------------------------------------------------------------

bool CreditDesk::receive() {
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  zmq::message_t part;
  if (!socket.recv(part, zmq::recv_flags::dontwait)) return false;
  State& state = *state_;
  state.arrival_ns = wall_clock_ns();
  state.routing_id = part.to_string();
  state.count = 0;
  bool more = part.more();
  while (more) {
    zmq::message_t& frame = state.count < state.frames.size() ? state.frames[state.count] : part;
    // The frames of a message arrive as one: none of them is late.
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) break;
    bytes_.add(static_cast<std::int64_t>(frame.size()));
    if (state.count < state.frames.size()) {
      state.views[state.count] = {frame.data<std::byte>(), frame.size()};
    }
    more = frame.more();
    ++state.count;
  }
  received_.add();
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
    if (state_->count > state_->frames.size()) {
      throw DataError("a message of " + std::to_string(state_->count) + " frames; expected " +
                      std::to_string(state_->frames.size()) + " at most");
    }
    return parse_framed(std::span(std::as_const(state_->views)).first(state_->count));
  } catch (const DataError&) {
    // Whoever sent it takes it for a batch, most likely, and would wait for that credit for ever.
    if (peer != nullptr && !peer->gone && state_->book.take(peer->id)) {
      state_->book.give_back(peer->id);
      if (const auto lease = lease_number()) {
        peer->returns.push_back(*lease);
        peer->owes_credit = true;
      }
    }
    throw;
  }
}

/// Of a message that lends memory, as it seems, whatever else is wrong with it.
std::optional<std::uint64_t> CreditDesk::lease_number() const {
  const auto header = read_framed_header(state_->views[0]);
  if (!header || (header->flags & kFramedShared) == 0 || state_->count != 2 ||
      state_->views[1].size() != kFramedLeaseBytes) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  std::memcpy(&number, state_->views[1].data(), sizeof(number));
  return number;
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
  state_->bad_in_a_row.erase(zmq_msg_get(state_->frames[0].handle(), ZMQ_SRCFD));
  give_back(arrival);
  for (zmq::message_t& frame : state_->frames) frame.rebuild();
}

void CreditDesk::refuse(const Arrival& arrival, const std::string& why) {
  give_back(arrival);
  reject(arrival.peer, why);
}

void CreditDesk::reject(CreditPeer* peer, const std::string& why) {
  State& state = *state_;
  const MessageSender sender = sender_of(state.frames[0].handle());
  const std::string text = "message " + std::to_string(received_.value()) + " of " +
                           (peer != nullptr ? peer->name + ", " : "") + penstock::describe(sender) +
                           " refused: " + why;
  const bool fails = plan_.on_bad_sample.action == BadSamplePolicy::Action::fail;
  if (!fails) probe_.note(text);
  rejected_.add();
  if (fails) {
    throw DataError(text + "; mend the producer, or skip such messages with --on-bad-sample skip");
  }
  if (plan_.on_bad_sample.limit >= 0 && rejected_.value() > plan_.on_bad_sample.limit) {
    throw DataError(text + "; that is more than --on-bad-sample skip:limit=" +
                    std::to_string(plan_.on_bad_sample.limit) + " allows");
  }
  state.last_rejection = text;
  if (++state.bad_in_a_row[sender.connection] < kMostBadInARow) return;
  state.bad_in_a_row.erase(sender.connection);
  if (peer != nullptr && !peer->gone) leave(*peer);
  if (!socket_.cut_off(sender)) return;
  cut_off_.add();
  probe_.note("cut off " + penstock::describe(sender) + " after " + std::to_string(kMostBadInARow) +
              " bad messages in a row" +
              (sender.public_key.empty() ? ", until it connects anew" : "; its key is banned"));
}

// ---- messages out -----------------------------------------------------------

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
    peer.owes_credit = false;
    peer.note_credit(total, credit.sent_ns);
  }
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
  for (const CreditBook::Producer id : state.book.grant()) state.by_id.at(id)->owes_credit = true;
  for (const auto& [routing_id, peer] : state.peers) {
    if (!peer->gone && (peer->owes_credit || probes)) send_credit(*peer);
  }
}

void CreditDesk::leave(CreditPeer& peer) {
  peer.gone = true;
  state_->book.remove(peer.id);
  state_->by_id.erase(peer.id);
  if (peer.ended) return;
  if (state_->left_at.size() < kMostLeft) state_->left_at[peer.producer] = peer.next_sequence;
  lost_.add();
  probe_.note(peer.name + " has gone without an end, after " + std::to_string(peer.received) +
              " batches");
}

void CreditDesk::forget_the_gone() {
  std::erase_if(state_->peers, [](const auto& entry) { return entry.second->gone; });
}

std::string CreditDesk::silence() const {
  const State& state = *state_;
  std::string text;
  if (!state.last_rejection.empty()) {
    text = std::to_string(rejected_.value()) +
           " messages were refused, the last: " + state.last_rejection + "; ";
  }
  std::size_t ended = 0;
  for (const auto& [id, peer] : state.by_id) ended += peer->ended ? 1 : 0;
  text += std::to_string(welcomed_.value()) + " producers were welcomed, of which " +
          std::to_string(state.by_id.size()) + " are here, " + std::to_string(ended) +
          " of them at their end";
  return text;
}

}  // namespace penstock
