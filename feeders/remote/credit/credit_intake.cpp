// SPDX-License-Identifier: Apache-2.0
// Producers with credit (feeders/remote/framed_format.md): a ROUTER socket. Each producer may have
// a few batches in flight, and sends the next one when one of them is in a slot of the ring, or
// decoded. The intake accepts producers or tells them the reason for a refusal, and maps their
// shared memory. A batch in shared memory is lent to the slot's readers, and its lease is returned
// when they are done. It is copied if the ring takes no loans or the device cannot read it.
//
// Image files lie in the messages. Each message is held until all its images are decoded. The
// thread that releases the last image of a message wakes the one that receives.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/options.h"
#include "dataflow/values/value_at.h"
#include "feeders/remote/credit/credit_peers.h"
#include "feeders/remote/receive/message_intake.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/wire/framed.h"
#include "feeders/remote/wire/framed_texts.h"

namespace penstock::remote {
namespace {

/// Room in the socket besides batches: for a hello and an end.
constexpr std::int64_t kOtherMessages = 4;
/// How long a producer may take to send the file descriptor of its pool. Other producers wait.
constexpr Nanoseconds kPoolPatience = std::chrono::seconds(1);
/// Longest patience with unused credits. Usually it is a tenth of the timeout for a batch.
constexpr Nanoseconds kMostPatience = std::chrono::seconds(1);
/// Data of an ended producer in kernel buffers arrive within this time.
constexpr Nanoseconds kFlush = std::chrono::seconds(1);
/// Time between two checks whether a device has finished reading a loan.
constexpr Nanoseconds kReadBeat = std::chrono::milliseconds(1);
/// How long a slot that came back may wait for the next message before its lease is returned. At
/// high rates, one wake-up and one credit message then serve both.
constexpr Nanoseconds kReturnDelay = std::chrono::milliseconds(1);

void require_encoding(FramedEncoding expected, const FramedHeader& header) {
  if (header.encoding == expected) return;
  throw DataError("its batches are {}; expected {}; {}", to_string(header.encoding),
                  to_string(expected),
                  expected == FramedEncoding::pixels
                      ? "use zmq-consume:encoded=true, or start the producer without --encoded"
                      : "start the producer as `penstock serve --encoded --credit`, or leave "
                        "zmq-consume:encoded=true out");
}

/// Lease number of a message that seems to lend memory, even if the rest is invalid.
std::optional<std::uint64_t> lease_number(MessageFrames frames) {
  const auto header = frames.size() == 2 ? read_framed_header(frames[0]) : std::nullopt;
  if (!header || (header->flags & kFramedShared) == 0 || frames[1].size() != kFramedLeaseBytes) {
    return std::nullopt;
  }
  return values::value_at<std::uint64_t>(frames[1], 0);
}

ZmqSocketOptions socket_options(const ConsumePlan& plan) {
  ZmqSocketOptions socket = plan.socket;
  socket.role = ZmqSocketOptions::Role::router;
  // All that a producer may send fits, so that libzmq never stops reading from it.
  socket.hwm = plan.credit->credit + kOtherMessages;
  return socket;
}

BatchReceipt receipt_of(const Arrival& arrival) {
  BatchReceipt receipt{.producer = arrival.peer->id};
  if (arrival.framed->is_shared()) receipt.lease = framed_lease(*arrival.framed).lease;
  return receipt;
}

class CreditIntake final : public MessageIntake {
 public:
  CreditIntake(const FeederContext& context, const ConsumePlan& plan)
      : MessageIntake(context, plan,
                      {.producers = plan.producers,
                       .limits = {.producers = static_cast<std::size_t>(plan.credit->producers) +
                                               CreditPeers::kMostLeft}}),
        terms_(*plan.credit),
        encoding_(plan.image_files ? FramedEncoding::jpeg : FramedEncoding::pixels),
        reader_(terms_.copies ? nullptr : &context.device),
        ring_slots_(static_cast<std::size_t>(context.slots)),
        endpoint_(plan.endpoints.front()),
        shared_bytes_(probe_.counter("bytes_shared")),
        refused_(probe_.counter("producers_refused")),
        pools_(probe_.counter("pools_mapped")),
        socket_(endpoint_.endpoint, socket_options(plan),
                {.refused = [&counter = probe_.counter("peers_refused")] { counter.add(); },
                 .say = [&probe = probe_](
                            const std::string& text) { probe.note("zmq-consume " + text); }}),
        peers_({.credit = terms_.credit,
                .together = terms_.together,
                .patience = std::clamp(timeout_ / 10, CreditPeers::kBeat, kMostPatience),
                .max_message = plan.socket.max_message},
               socket_, framed_, probe_) {
    slots_ = std::make_shared<LentSlots>(clock_);
    if (encoding_ == FramedEncoding::pixels) {
      copied_ = &probe_.counter("bytes_copied");
      lent_ = &probe_.counter("bytes_lent");
    }
    if (socket_.address() != endpoint_.endpoint.text) {
      probe_.note("zmq-consume listens at " + socket_.address());
    }
    start_producer(plan.producer);
  }
  ~CreditIntake() override { producer_.reset(); }

  bool receive(Arrival& to, Time since, StageTimer& timer, StageTimer::Item& item,
               const std::stop_token& stop) override;
  void refuse(Arrival& arrival, const std::string& why, bool misfits) override;
  void release(Arrival& arrival) override;
  void hold(Arrival& arrival, std::int32_t slot) override;
  void serve(const std::stop_token& stop) override;
  void end(double copy_s) override {
    peers_.look();
    MessageIntake::end(copy_s);
  }

 private:
  bool next(Arrival& to, const std::stop_token& stop);
  bool receive_message(Arrival& to);
  bool handle(Arrival& to, const std::stop_token& stop);
  FramedMessage parse(const ZmqMessage& message);
  void admit(const FramedMessage& hello, std::int64_t arrived_ns, const std::stop_token& stop);
  std::shared_ptr<const ProducerPool> map_pool(const FramedHello& hello,
                                               const std::stop_token& stop);
  void note_few_leases(const CreditPeer& peer);
  void admit(Arrival& to, const FramedMessage& batch);
  void reject_from(CreditPeer* peer, const ZmqMessage& message, const std::string& why,
                   bool misfits);

  LentSlots::News collect();
  bool await(Time deadline, Nanoseconds beat, const std::stop_token& stop);
  void note_way(bool& said, const std::string& how);
  std::string silence();

  const CreditTerms terms_;
  const FramedEncoding encoding_;  // of all batches
  Device* const reader_;           // reads shared memory without a copy; null: none
  const std::size_t ring_slots_;
  const ConsumeEndpoint endpoint_;
  const std::string boot_ = boot_id();
  Counter &shared_bytes_, &refused_, &pools_;
  Counter *copied_ = nullptr, *lent_ = nullptr;  // of pixels
  ZmqSocket socket_;
  CreditPeers peers_;
  std::string routing_id_;              // of the last message
  std::vector<BatchReceipt> receipts_;  // by slot
  std::int64_t held_ = 0;               // slots that take the room of their producers
  bool said_lent_ = false, said_copied_ = false;
  bool waits_for_messages_alone_ = false;  // leases may wait for the next message
  std::optional<Time> ended_at_;           // when we saw the end of the producer process
};

// ---- messages in ------------------------------------------------------------

bool CreditIntake::receive(Arrival& to, Time since, StageTimer& timer, StageTimer::Item& item,
                           const std::stop_token& stop) {
  // Producers that wait for room send nothing: silence counts from the return of the last slot.
  if (held_ > 0 && collect().any) {
    peers_.look();
    since = clock_.now();
  }
  if (held_ == 0 && clock_.now() >= since + timeout_) throw TimeoutError(silence());
  while (!next(to, stop)) {
    if (stop.stop_requested()) return false;
    const LentSlots::News news = collect();
    peers_.look();
    if (held_ > 0 || news.any) since = clock_.now();
    const auto waiting = held_ > 0 && !peers_.await_batches() ? timer.wait_out() : timer.wait_in();
    if (!await(since + timeout_, news.pending ? kReadBeat : CreditPeers::kBeat, stop)) return false;
    item.restart();
  }
  return true;
}

/// Handles all messages up to the next batch. False: no batch has arrived, or stopped.
bool CreditIntake::next(Arrival& to, const std::stop_token& stop) {
  while (!stop.stop_requested() && receive_message(to)) {
    if (handle(to, stop)) return true;
  }
  peers_.remove_disconnected();
  return false;
}

bool CreditIntake::receive_message(Arrival& to) {
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  zmq::message_t sender;
  if (!socket.recv(sender, zmq::recv_flags::dontwait)) return false;
  to.arrived_ns = wall_clock_ns();
  routing_id_ = sender.to_string();
  to.message.clear();
  if (sender.more() && !to.message.receive(socket_.native())) return false;
  count(to.message);
  return true;
}

/// False: the message is no batch that is accepted.
bool CreditIntake::handle(Arrival& to, const std::stop_token& stop) {
  try {
    const FramedMessage message = parse(to.message);
    switch (message.header.kind) {
      case FramedKind::hello:
        admit(message, to.arrived_ns, stop);
        return false;
      case FramedKind::batch:
        admit(to, message);
        return true;
      case FramedKind::end: {
        CreditPeer& peer = peers_.sender_of(message.header, routing_id_);
        framed_.end(message.header);
        peers_.end(peer);
        return false;
      }
      default:
        throw DataError("a {}, which consumers send; expected a hello, a batch or an end",
                        to_string(message.header.kind));
    }
  } catch (const DataError& error) {
    if (!stop.stop_requested())
      reject_from(peers_.at(routing_id_), to.message, error.what(), false);
  }
  return false;
}

FramedMessage CreditIntake::parse(const ZmqMessage& message) {
  try {
    return parse_framed(message.frames());
  } catch (const DataError&) {
    // The sender probably counts this message as a batch. Without this it would wait for the credit
    // forever.
    CreditPeer* const peer = peers_.at(routing_id_);
    if (peer != nullptr && !peer->gone && peers_.take(*peer)) {
      peers_.give_back({.producer = peer->id, .lease = lease_number(message.kept_frames())});
    }
    throw;
  }
}

void CreditIntake::admit(const FramedMessage& message, std::int64_t arrived_ns,
                         const std::stop_token& stop) {
  const FramedHeader& header = message.header;
  peers_.end_previous(routing_id_);
  auto peer = std::make_unique<CreditPeer>();
  peer->routing_id = routing_id_;
  peer->producer = header.producer;
  try {
    const FramedHello hello = parse_framed_hello(message);
    peer->name = describe(hello, header.producer);
    require_encoding(encoding_, header);
    check_framed_shape(header, spec_);
    peers_.remove_if_connected(header.producer);
    if (std::cmp_greater_equal(peers_.count(), terms_.producers)) {
      throw DataError(
          "there are {} producers already; raise the limit with zmq-consume:max_producers=N",
          peers_.count());
    }
    if (hello.pool.empty() && terms_.shared_only) {
      throw DataError("it shares no memory, which zmq-consume:shared_memory=true requires");
    }
    // Image files are not read from shared memory: decoders read a file more than once, so it must
    // not change meanwhile.
    const bool maps = encoding_ == FramedEncoding::pixels;
    if (maps && !hello.pool.empty()) peer->pool = map_pool(hello, stop);
    framed_.hello(message);
    peer->shares_clock = !hello.boot.empty() && hello.boot == boot_;
  } catch (const DataError& error) {
    const std::string text = write_framed_refusal(error.what());
    const std::array frames{std::as_bytes(std::span(text))};
    peers_.send(routing_id_, {.kind = FramedKind::refusal, .producer = header.producer}, frames);
    refused_.add();
    throw;
  }
  const std::string text = write_framed_welcome({.images = spec_.images,
                                                 .height = spec_.image.height,
                                                 .width = spec_.image.width,
                                                 .channels = spec_.image.channels,
                                                 .classes = spec_.classes,
                                                 .boot = boot_});
  const std::array frames{std::as_bytes(std::span(text))};
  const FramedHeader welcome{.kind = FramedKind::welcome,
                             .producer = header.producer,
                             .begun_ns = header.sent_ns,
                             .ready_ns = arrived_ns,
                             .sent_ns = wall_clock_ns()};
  // Otherwise it has gone again.
  if (peers_.send(routing_id_, welcome, frames) != CreditPeers::Sent::yes) return;
  note_few_leases(*peer);
  peers_.add(std::move(peer));
}

std::shared_ptr<const ProducerPool> CreditIntake::map_pool(const FramedHello& hello,
                                                           const std::stop_token& stop) {
  if (!hello.boot.empty() && hello.boot != boot_) {
    throw DataError("it shares memory, but runs on another machine");
  }
  const std::shared_ptr<ProducerPool> pool(
      new ProducerPool{{hello.pool, terms_.max_pool, kPoolPatience, stop}, nullptr});
  if (reader_ != nullptr) pool->pin = reader_->pin(pool->memory.view(0, pool->memory.bytes()));
  pools_.add();
  return pool;
}

/// The ring may hold one lease per slot. Two more are needed: one in transit, one being filled.
void CreditIntake::note_few_leases(const CreditPeer& peer) {
  if (!peer.pool || peer.pool->pin == nullptr) return;
  const std::size_t batches = peer.pool->batches(spec_.bytes());
  if (batches >= ring_slots_ + 2) return;
  probe_.note(
      fmt::format("{} shares memory for {} batches, of which the ring may hold {}: it waits for "
                  "leases while the ring is full; expected {} or more (penstock serve --hwm), a "
                  "smaller --prefetch, or zmq-consume:copy=true",
                  peer.name, batches, ring_slots_, ring_slots_ + 2));
}

void CreditIntake::admit(Arrival& to, const FramedMessage& message) {
  const FramedHeader& header = message.header;
  CreditPeer& peer = peers_.sender_of(header, routing_id_);
  if (!peers_.take(peer)) {
    throw DataError("batch {} of {}, for which it had no credit", header.sequence, peer.name);
  }
  to.format = MessageFormat::framed;
  to.framed = message;
  to.peer = &peer;
  to.shared = {};
  to.pool.reset();
  peer.quiet_since = std::chrono::steady_clock::now();
  peer.note_batch(header, to.arrived_ns, probe_);
  to.ahead = peer.clock();
  try {
    require_encoding(encoding_, header);
    check_framed_shape(header, spec_);
    if (message.is_shared()) {
      const FramedLease lease = framed_lease(message);
      if (encoding_ != FramedEncoding::pixels) {
        throw DataError("its image files are in shared memory; expected them in the message");
      }
      if (!peer.pool) {
        throw DataError("it is in shared memory, but the hello of its producer named no pool");
      }
      to.shared = peer.pool->memory.view(lease.offset, lease.bytes);
      to.pool = peer.pool;
      shared_bytes_.add(static_cast<std::int64_t>(lease.bytes));
    }
    to.is_lendable = to.pool && to.pool->pin != nullptr && !peer.gone;
  } catch (const DataError&) {
    peers_.give_back(receipt_of(to));
    throw;
  }
}

// ---- what happens to batches ------------------------------------------------

void CreditIntake::refuse(Arrival& arrival, const std::string& why, bool misfits) {
  peers_.give_back(receipt_of(arrival));
  reject_from(arrival.peer, arrival.message, why, misfits);
  peers_.look();
}

/// Rejects a message of this producer; null: of a stranger.
void CreditIntake::reject_from(CreditPeer* peer, const ZmqMessage& message, const std::string& why,
                               bool misfits) {
  // Messages of strangers, or with the number of another producer, are in no account.
  const MessageFrames frames = message.kept_frames();
  auto header = frames.empty() ? std::nullopt : read_framed_header(frames[0]);
  if (peer == nullptr || (header && header->producer != peer->producer)) header.reset();
  const bool is_named = peer == nullptr || why.find(peer->name) != why.npos;
  reject(message, header, is_named ? why : fmt::format("{}: {}", peer->name, why), misfits);
  for (const BadMessages::Offender& offender : bad_.take_offenders()) {
    if (peer != nullptr && !peer->gone) peers_.leave(*peer);
    if (socket_.cut_off(offender.sender)) bad_.note_cut_off(offender);
  }
}

void CreditIntake::release(Arrival& arrival) {
  collect();
  peers_.give_back(receipt_of(arrival));
  copied_->add(static_cast<std::int64_t>(spec_.bytes()));
  if (arrival.pool != nullptr) {
    note_way(
        said_copied_,
        std::string("are copied into slots, because ") +
            (terms_.copies                  ? "of copy=true"
             : arrival.is_lendable          ? "the readers of the slots need their own memory"
             : arrival.pool->pin == nullptr ? "the device cannot read memory of other processes"
                                            : "their producer has disconnected"));
  }
  arrival.pool.reset();
  arrival.message.clear();
  peers_.look();
}

void CreditIntake::hold(Arrival& arrival, std::int32_t slot) {
  collect();  // also the last use of this slot
  const auto index = static_cast<std::size_t>(slot);
  if (index >= receipts_.size()) receipts_.resize(index + 1);
  slots_->keep(slot, std::move(arrival.pool));
  if (encoding_ != FramedEncoding::pixels) {
    receipts_[index] = receipt_of(arrival);
    ++held_;
    return;
  }
  receipts_[index] = peers_.lend(*arrival.peer, framed_lease(*arrival.framed).lease);
  ++loans_;
  lent_->add(static_cast<std::int64_t>(spec_.pixel_bytes()));
  copied_->add(static_cast<std::int64_t>(spec_.label_bytes()));
  note_way(said_lent_, "are lent to the device in place: this process copies none");
  waits_for_messages_alone_ = true;
  arrival.message.clear();
  peers_.look();
}

/// Notes once how readers get batches from shared memory.
void CreditIntake::note_way(bool& said, const std::string& how) {
  if (!std::exchange(said, true)) {
    probe_.note("zmq-consume: batches in shared memory " + how);
  }
}

/// Gives back what is owed for the slots that came back.
LentSlots::News CreditIntake::collect() {
  return slots_->collect([this](std::int32_t slot) {
    const auto index = static_cast<std::size_t>(slot);
    if (index >= receipts_.size() || receipts_[index].producer == 0) return;
    const BatchReceipt receipt = std::exchange(receipts_[index], {});
    --(receipt.owes_room ? held_ : loans_);
    peers_.give_back(receipt);
  });
}

// ---- waiting ----------------------------------------------------------------

void CreditIntake::serve(const std::stop_token& stop) {
  const LentSlots::News news = collect();
  if (news.any) return;
  peers_.look();
  const std::stop_callback wake(stop, [this] { slots_->wake(); });
  slots_->wait(news.pending ? kReadBeat : CreditPeers::kBeat);
}

/// Waits at most `beat`, for a message or a slot that comes back; after each loan, first only for
/// a message, unless a producer is short of memory. Returns false if stopped, or if
/// the expected producers have ended and all their batches are here. Throws TimeoutError after the
/// deadline, and DataError if the producer process failed.
bool CreditIntake::await(Time deadline, Nanoseconds beat, const std::stop_token& stop) {
  const bool is_idle = held_ == 0;
  if (is_idle && framed_.flow() != ProducerAccounts::Flow::coming) return false;
  const bool ended = producer_ended();
  if (!is_idle) {
    ended_at_.reset();
  } else if (ended) {
    if (!ended_at_) ended_at_ = clock_.now();
    if (clock_.now() - *ended_at_ >= kFlush && !producer_->group_lives()) {
      check_end_of_producer();
      return false;
    }
  }
  if (clock_.now() >= deadline) throw TimeoutError(silence());
  const bool delays = std::exchange(waits_for_messages_alone_, false) && is_idle && loans_ > 0 &&
                      peers_.can_spare_leases(spec_.bytes());
  const Nanoseconds limit =
      std::min<Nanoseconds>(deadline - clock_.now(), delays ? kReturnDelay : beat);
  const int producer = producer_ && !ended ? producer_->fd() : -1;
  return socket_.wait(limit, stop, delays ? -1 : slots_->fd(), producer) !=
         ZmqSocket::Wake::stopped;
}

/// Explains why nothing usable came in time.
std::string CreditIntake::silence() {
  const ZmqSocket::Peers peers = socket_.peers();
  const std::string refused = refusals();
  std::string text =
      fmt::format("{}{} within {} (this side {}); ",
                  refused.empty() ? "no batch came over " : "no usable batch came over ",
                  net::describe(endpoint_.endpoint), seconds_text(timeout_),
                  endpoint_.bind ? "binds" : "connects");
  if (peers.refused > 0) {
    text += fmt::format("{} connections were refused, see the notes about keys; ", peers.refused);
  }
  if (peers.joined == 0) {
    text += "no producer ever connected";
  } else {
    text += refused + (refused.empty() ? "" : "; ") + peers_.describe();
  }
  return fmt::format(
      "{}{}, such as `penstock serve --credit{} --endpoint {} --batch-size {}{}`, or wait longer "
      "with --timeout",
      text, refused.empty() ? "; start one" : "; correct the producer, or start one",
      encoding_ == FramedEncoding::jpeg ? " --encoded" : "", endpoint_.endpoint.text, spec_.images,
      endpoint_.bind ? "" : " --bind");
}

}  // namespace

std::unique_ptr<MessageIntake> make_credit_intake(const FeederContext& context,
                                                  const ConsumePlan& plan) {
  return std::make_unique<CreditIntake>(context, plan);
}

}  // namespace penstock::remote
