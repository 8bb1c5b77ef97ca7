// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/credit/credit_push.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/net/shared_memory/pool_listener.h"
#include "feeders/remote/credit/producer_session.h"
#include "feeders/remote/receive/ready_batches.h"
#include "feeders/remote/receive/shared_frame_memory.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {
namespace {

/// libzmq may keep the last bytes of small messages in a buffer.
constexpr std::chrono::milliseconds kLinger{1000};

/// Room in the socket besides batches: for a hello, an end and a few credits.
constexpr std::int64_t kOtherMessages = 16;

/// The number of slots limits what waits in the socket. So the socket has room for every batch that
/// has a credit.
ZmqSocketOptions with_room(ZmqSocketOptions options, std::size_t slots) {
  options.hwm = static_cast<std::int64_t>(slots) + kOtherMessages;
  return options;
}

CreditOffer offer_of(const BatchSpec& spec, const std::string& pool) {
  CreditOffer offer{.header = {.kind = FramedKind::hello,
                               .encoding = FramedEncoding::pixels,
                               .producer = draw_producer_number(),
                               .images = static_cast<std::uint32_t>(spec.images),
                               .height = static_cast<std::uint32_t>(spec.image.height),
                               .width = static_cast<std::uint32_t>(spec.image.width),
                               .channels = static_cast<std::uint32_t>(spec.image.channels)},
                    .hello = hello_of_this_process("penstock serve"),
                    .classes = spec.classes};
  offer.hello.pool = pool;
  return offer;
}

}  // namespace

struct CreditPush::State {
  /// A slot that is lent to the consumer, or to libzmq.
  struct Out {
    State* owner = nullptr;
    ReadLease lease;
    std::span<std::byte> labels;  // the slot's own place for labels
    std::byte* moved_labels = nullptr;
  };

  /// Filled before libzmq's threads start: only messages tell those threads about slots.
  static std::vector<Out> slots_of(State& owner, std::size_t count) {
    std::vector<Out> slots(count);
    for (Out& slot : slots) slot.owner = &owner;
    return slots;
  }

  State(BatchRing& ring, const net::SharedPool* pool, const net::Endpoint& endpoint,
        const ZmqSocketOptions& options, Clock& clock, Probe& probe, net::PeerReports reports);

  void run(const PushPlan& plan, const std::stop_token& stop);
  void send(ReadyBatches::Ready ready);
  void send_over_socket(FramedHeader header, ReadLease lease, std::size_t pixel_bytes,
                        std::size_t label_bytes);
  void lend(FramedHeader header, ReadLease lease, std::size_t pixel_bytes, std::size_t label_bytes);
  void lose_leases();
  void take_back(std::uint64_t lease);
  void take_back(Out& slot);
  std::size_t held_by_libzmq() {
    const std::lock_guard lock(mutex);
    return in_libzmq;
  }
  static void given_back(void*, void* hint);
  [[noreturn]] void nobody_takes(Nanoseconds timeout) const;

  BatchRing& ring;
  const net::SharedPool* const pool;
  const net::Endpoint endpoint;
  Clock& clock;
  Counter &batches, &bytes, &sent_images, &wait_ns, &feed_wait_ns, &lost;
  const std::unique_ptr<net::PoolListener> listener;
  std::uint64_t sequence = 0, images = 0;
  std::map<std::uint64_t, Out*> leases;  // slots lent in shared memory, by lease number
  std::uint64_t lease_numbers = 0;
  Time progress{};  // when a batch was sent or a lease returned

  std::mutex mutex;
  // All below are under mutex: libzmq's thread gives slots back.
  std::vector<Out> out;
  std::size_t in_libzmq = 0;

  ZmqSocket socket;  // closes before the members above: libzmq gives back slots that it holds
  ProducerSession line;
};

CreditPush::State::State(BatchRing& ring_, const net::SharedPool* pool_,
                         const net::Endpoint& endpoint_, const ZmqSocketOptions& options,
                         Clock& clock_, Probe& probe, net::PeerReports reports)
    : ring(ring_),
      pool(pool_),
      endpoint(endpoint_),
      clock(clock_),
      batches(probe.counter("batches_sent")),
      bytes(probe.counter("bytes_sent")),
      sent_images(probe.counter("images_sent")),
      wait_ns(probe.counter("send_wait_ns")),
      feed_wait_ns(probe.counter("feed_wait_ns")),
      lost(probe.counter("leases_lost")),
      listener(pool_ == nullptr ? nullptr
                                : std::make_unique<net::PoolListener>(pool_->fd(), geteuid())),
      out(slots_of(*this, ring_.slots())),
      socket(endpoint_, with_room(options, ring_.slots()), std::move(reports)),
      line(socket, endpoint_, offer_of(ring_.spec(), listener ? listener->name() : ""),
           {.lost = [this] { lose_leases(); },
            .returned = [this](std::uint64_t lease) { take_back(lease); }}) {
  PENSTOCK_ASSERT(ring.readers() == 1 && options.role == ZmqSocketOptions::Role::dealer);
}

void CreditPush::State::send(ReadyBatches::Ready ready) {
  ReadLease lease = std::move(ready.lease);
  const Batch batch = lease.batch();
  const BatchSpec& spec = ring.spec();
  const auto valid = static_cast<std::size_t>(batch.valid);
  const Nanoseconds age = clock.now() - ready.since;
  const std::int64_t now = wall_clock_ns();
  const FramedHeader header{.kind = FramedKind::batch,
                            .encoding = FramedEncoding::pixels,
                            .producer = line.producer(),
                            .sequence = sequence++,
                            .images_before = std::exchange(images, images + valid),
                            .ready_ns = now - age.count(),
                            .sent_ns = now,
                            .images = static_cast<std::uint32_t>(valid),
                            .height = static_cast<std::uint32_t>(spec.image.height),
                            .width = static_cast<std::uint32_t>(spec.image.width),
                            .channels = static_cast<std::uint32_t>(spec.image.channels)};
  const std::size_t pixel_bytes = valid * spec.row_bytes();
  const std::size_t label_bytes = valid * sizeof(std::int32_t);
  if (pool != nullptr) {
    lend(header, std::move(lease), pixel_bytes, label_bytes);
  } else {
    send_over_socket(header, std::move(lease), pixel_bytes, label_bytes);
  }
  line.note_sent();
  batches.add();
  sent_images.add(batch.valid);
  bytes.add(static_cast<std::int64_t>(pixel_bytes + label_bytes));
  progress = clock.now();
}

void CreditPush::State::send_over_socket(FramedHeader header, ReadLease lease,
                                         std::size_t pixel_bytes, std::size_t label_bytes) {
  const Batch batch = lease.batch();
  const auto labels = std::as_bytes(batch.labels).first(label_bytes);
  const std::array<std::span<const std::byte>, 2> frames{batch.pixels.first(pixel_bytes), labels};
  const auto first = make_framed_header(header, frames);
  Out& slot = out[static_cast<std::size_t>(batch.slot)];
  zmq::message_t last(labels.data(), labels.size());
  {
    const std::lock_guard lock(mutex);
    slot.lease = std::move(lease);
    ++in_libzmq;
  }
  zmq::message_t pixels(batch.pixels.data(), pixel_bytes, given_back, &slot);  // libzmq's now
  zmq::socket_ref to(zmq::from_handle, socket.native());
  constexpr auto kMore = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
  // When a connection ends, the rest of a message is dropped with it.
  if (!line.put(first, true)) return;
  // Always send the last frame, even if the pixels fail. Otherwise libzmq would take the next
  // message for the rest of this one.
  static_cast<void>(to.send(pixels, kMore));
  static_cast<void>(to.send(last, zmq::send_flags::dontwait));
}

/// libzmq calls this when it no longer needs the pixels of a slot.
void CreditPush::State::given_back(void*, void* hint) {
  Out& slot = *static_cast<Out*>(hint);
  State& owner = *slot.owner;
  const std::lock_guard lock(owner.mutex);
  slot.lease = ReadLease();
  --owner.in_libzmq;
}

void CreditPush::State::lend(FramedHeader header, ReadLease lease, std::size_t pixel_bytes,
                             std::size_t label_bytes) {
  constexpr std::size_t kAlignment = SharedFrameMemory::kFrameAlignment;
  const Batch batch = lease.batch();
  const std::size_t labels_at = (pixel_bytes + kAlignment - 1) / kAlignment * kAlignment;
  Out& slot = out[static_cast<std::size_t>(batch.slot)];
  slot.lease = std::move(lease);
  slot.labels = std::as_writable_bytes(batch.labels).first(label_bytes);
  slot.moved_labels = batch.pixels.data() + labels_at;
  std::memmove(slot.moved_labels, slot.labels.data(), label_bytes);
  const std::uint64_t number = ++lease_numbers;
  leases[number] = &slot;
  std::array<std::byte, kFramedLeaseBytes> frame{};
  write_framed_lease(frame, {.lease = number,
                             .offset = pool->offset_of(batch.pixels.data()),
                             .bytes = labels_at + label_bytes});
  const std::array<std::span<const std::byte>, 1> frames{frame};
  header.flags = kFramedShared;
  // If the connection has ended, the lease is taken back when look() notices.
  if (line.put(make_framed_header(header, frames), true)) line.put(frame, false);
}

/// The consumer has gone: takes all leases back.
void CreditPush::State::lose_leases() {
  for (const auto& [number, slot] : leases) take_back(*slot);
  lost.add(static_cast<std::int64_t>(leases.size()));
  leases.clear();
}

void CreditPush::State::take_back(std::uint64_t lease) {
  const auto found = leases.find(lease);
  if (found == leases.end()) return;
  take_back(*found->second);
  leases.erase(found);
  progress = clock.now();
}

void CreditPush::State::take_back(Out& slot) {
  // Restore the labels: constant feeders fill a slot once and publish it again and again.
  std::memmove(slot.labels.data(), slot.moved_labels, slot.labels.size());
  slot.lease = ReadLease();
}

void CreditPush::State::run(const PushPlan& plan, const std::stop_token& stop) {
  ReadyBatches ready(ring, plan, clock);
  bool ended = false;  // whether the end was sent
  std::size_t held = 0;
  progress = clock.now();
  while (!stop.stop_requested()) {
    for (line.look(); line.may_send() && ready.has_one(); line.look()) send(ready.pop());
    const bool over = ready.is_over();
    const bool has_one = ready.has_one();
    if (over && line.is_welcome() && !ended) ended = line.send_end(sequence, images);
    const std::size_t held_now = held_by_libzmq();
    if (std::exchange(held, held_now) != held_now) progress = clock.now();
    if (over && leases.empty() && held == 0 && !socket.has_unread_bytes()) break;
    // Waiting for our own feeder does not count toward the timeout.
    if (!over && !has_one) progress = std::max(progress, clock.now());
    if (clock.now() - progress > plan.timeout) nobody_takes(plan.timeout);
    const Time asked = clock.now();
    const bool wants_batch = !over && !has_one;
    socket.wait(ProducerSession::kBeat, stop, wants_batch ? ready.fd() : -1);
    if (has_one) wait_ns.add((clock.now() - asked).count());
    if (wants_batch) {
      feed_wait_ns.add((clock.now() - asked).count());
      ready.reset();
    }
  }
  if (!stop.stop_requested()) socket.linger(kLinger);
}

void CreditPush::State::nobody_takes(Nanoseconds timeout) const {
  const ZmqSocket::Peers peers = socket.peers();
  throw TimeoutError(
      "no consumer took a batch at " + describe(endpoint) + " within " + seconds_text(timeout) +
      "; " +
      (peers.joined == 0    ? "no consumer ever connected"
       : !line.is_welcome() ? "no connected consumer answered the hello"
       : leases.empty()     ? "the consumer has no room for more"
                            : "the consumer holds " + std::to_string(leases.size()) + " leases") +
      (peers.refused == 0 ? ""
                          : "; " + std::to_string(peers.refused) + " connections were refused") +
      "; start one, such as `penstock run --fake-location zmq-consume:credit=2,endpoint=" +
      endpoint.text + "`, or wait longer with --timeout");
}

CreditPush::CreditPush(BatchRing& ring, const net::SharedPool* pool, const net::Endpoint& endpoint,
                       const ZmqSocketOptions& socket, Clock& clock, Probe& probe,
                       net::PeerReports reports)
    : state_(std::make_unique<State>(ring, pool, endpoint, socket, clock, probe,
                                     std::move(reports))) {}
CreditPush::~CreditPush() = default;

void CreditPush::run(const PushPlan& plan, std::stop_token stop) { state_->run(plan, stop); }
const std::string& CreditPush::address() const noexcept { return state_->socket.address(); }
std::int64_t CreditPush::refused() const noexcept { return state_->socket.peers().refused; }
std::optional<ClockBounds::Estimate> CreditPush::clock() const noexcept {
  return state_->line.clock();
}

}  // namespace penstock::remote
