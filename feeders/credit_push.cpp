// SPDX-License-Identifier: Apache-2.0
#include "feeders/credit_push.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/wire/framed.h"
#include "feeders/credit_push_state.h"
#include "feeders/ready_batches.h"
#include "feeders/shared_frame_memory.h"

namespace penstock {
namespace {

/// Between two looks at who is connected: libzmq wakes nobody for that.
constexpr Nanoseconds kBeat = std::chrono::milliseconds(20);
/// libzmq may hold the last bytes of small messages in a buffer of its own.
constexpr std::chrono::milliseconds kLinger{1000};

/// Room in the socket beside batches: for a hello, an end and a few credits.
constexpr std::int64_t kOtherMessages = 16;

std::uint64_t random_number() {
  std::random_device device;
  std::uint64_t number = 0;
  while (number == 0) number = std::uint64_t{device()} << 32 | device();
  return number;
}

/// What waits in the socket is bounded by the slots, so that it takes whatever there is a credit
/// for.
ZmqSocketOptions with_room(ZmqSocketOptions options, std::size_t slots) {
  options.hwm = static_cast<std::int64_t>(slots) + kOtherMessages;
  return options;
}

}  // namespace

CreditPush::State::State(BatchRing& ring_, const SharedPool* pool_, const Endpoint& endpoint_,
                         const ZmqSocketOptions& options, Clock& clock_, Probe& probe,
                         PeerReports reports)
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
      producer(random_number()),
      out(slots_of(*this, ring_.slots())),
      socket(endpoint_, with_room(options, ring_.slots()), std::move(reports)) {
  PENSTOCK_ASSERT(ring.readers() == 1 && options.role == ZmqSocketOptions::Role::dealer);
  if (pool != nullptr) listener.emplace(pool->fd(), geteuid());
}

void CreditPush::State::send(ReadLease lease) {
  const Batch batch = lease.batch();
  const BatchSpec& spec = ring.spec();
  const auto valid = static_cast<std::size_t>(batch.valid);
  const Nanoseconds age = clock.now() - batch.offered;
  const std::int64_t now = wall_clock_ns();
  const FramedHeader header{.kind = FramedKind::batch,
                            .encoding = FramedEncoding::pixels,
                            .producer = producer,
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
  ++sent_since_welcome;
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
  zmq::message_t pixels(batch.pixels.data(), pixel_bytes, given_back, &slot);  // from here libzmq's
  zmq::socket_ref to(zmq::from_handle, socket.native());
  constexpr auto kMore = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
  // A connection that ends takes the rest of a message with it.
  if (!put(first, true)) return;
  // Whatever becomes of the pixels, the last frame ends the message: libzmq would take the next one
  // for its rest.
  static_cast<void>(to.send(pixels, kMore));
  static_cast<void>(to.send(last, zmq::send_flags::dontwait));
}

/// Called by libzmq: the pixels of a slot are no longer needed.
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
  // Where there is no connection any more, the lease is taken back when its end is seen.
  if (put(make_framed_header(header, frames), true)) put(frame, false);
}

void CreditPush::State::take_back(Out& slot) {
  // Constant feeders fill a slot once and publish it again and again.
  std::memmove(slot.labels.data(), slot.moved_labels, slot.labels.size());
  slot.lease = ReadLease();
}

void CreditPush::State::run(const PushPlan& plan, const std::stop_token& stop) {
  ReadyBatches ready(ring, plan, clock);
  bool ended = false;  // and its end was sent
  std::size_t held = 0;
  progress = clock.now();
  while (!stop.stop_requested()) {
    look();
    while (receive()) {
    }
    while (is_welcome() && ready.has_one()) send(ready.pop());
    const bool over = ready.is_over();
    const bool has_one = ready.has_one();
    if (over && welcomed && !ended) {
      const auto end = make_framed_header({.kind = FramedKind::end,
                                           .producer = producer,
                                           .sequence = sequence,
                                           .images_before = images},
                                          {});
      ended = put(end, false);
    }
    const std::size_t held_now = held_by_libzmq();
    if (std::exchange(held, held_now) != held_now) progress = clock.now();
    if (over && leases.empty() && held == 0 && !socket.has_unread_bytes()) break;
    // Waiting for the feeder is nobody's fault.
    if (!over && !has_one) progress = std::max(progress, clock.now());
    if (clock.now() - progress > plan.timeout) nobody_takes(plan.timeout);
    const Time asked = clock.now();
    const bool wants_batch = !over && !has_one;
    socket.wait(kBeat, stop, wants_batch ? ready.fd() : -1);
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
      "nobody took a batch at " + describe(endpoint) + " within " + seconds_text(timeout) + "; " +
      (peers.joined == 0 ? "no consumer ever connected"
       : !welcomed       ? "nobody who is connected answered the hello"
       : leases.empty()  ? "the consumer has no room for more"
                         : "the consumer holds " + std::to_string(leases.size()) + " leases") +
      (peers.refused == 0
           ? ""
           : "; " + std::to_string(peers.refused) + " tries to come in were refused") +
      "; start one, such as `penstock run --fake-location zmq-consume:credit=2,endpoint=" +
      endpoint.text + "`, or wait longer with --timeout");
}

CreditPush::CreditPush(BatchRing& ring, const SharedPool* pool, const Endpoint& endpoint,
                       const ZmqSocketOptions& socket, Clock& clock, Probe& probe,
                       PeerReports reports)
    : state_(std::make_unique<State>(ring, pool, endpoint, socket, clock, probe,
                                     std::move(reports))) {}
CreditPush::~CreditPush() = default;

void CreditPush::run(const PushPlan& plan, std::stop_token stop) { state_->run(plan, stop); }
const std::string& CreditPush::address() const noexcept { return state_->socket.address(); }
std::int64_t CreditPush::refused() const noexcept { return state_->socket.peers().refused; }
std::optional<ClockBounds::Estimate> CreditPush::clock() const noexcept {
  return state_->consumer_clock.estimate();
}

}  // namespace penstock
