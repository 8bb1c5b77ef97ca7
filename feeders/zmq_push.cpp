// SPDX-License-Identifier: Apache-2.0
#include "feeders/zmq_push.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/pace.h"
#include "dataflow/wire/zmq_op.h"

namespace penstock {
namespace {

/// Before the pixels, so that they stay aligned as Device::allocate promises.
constexpr std::size_t kLead = 4096;

/// Between two looks at whether the receiver has read everything, after the last batch.
constexpr Nanoseconds kUnreadPeriod = std::chrono::milliseconds(5);

/// libzmq may hold the last bytes of small messages in a buffer of its own.
constexpr std::chrono::milliseconds kLinger{1000};

}  // namespace

Buffer FrameMemory::allocate(std::size_t bytes, MemoryKind kind) {
  const std::size_t size = kLead + bytes + BatchLayout::kLabelsHeader;
  Buffer& block = blocks_.emplace_back(host_.allocate(size, kind));
  return Buffer(block.bytes().data() + kLead, bytes, [](std::byte*) {});
}

/// The slots that libzmq holds. Given back by whichever thread closes the message.
struct ZmqPush::Outgoing {
  struct Slot {
    Outgoing* owner = nullptr;
    ReadLease lease;
    std::span<std::byte> labels;  // where the ring's readers look for them
    const std::byte* moved_labels = nullptr;
  };

  explicit Outgoing(std::size_t count) : slots(count) {
    for (Slot& slot : slots) slot.owner = this;
  }

  /// Called by libzmq: the bytes of a slot are no longer needed.
  static void give_back(void*, void* hint) {
    Slot& slot = *static_cast<Slot*>(hint);
    Outgoing& owner = *slot.owner;
    const std::lock_guard lock(owner.mutex);
    // Constant feeders fill a slot once and publish it again and again.
    std::memmove(slot.labels.data(), slot.moved_labels, slot.labels.size());
    slot.lease = ReadLease();
    --owner.held;
    owner.returned.notify_all();
  }

  std::mutex mutex;
  std::condition_variable_any returned;
  // All below under mutex.
  std::vector<Slot> slots;
  std::size_t held = 0;
};

ZmqPush::ZmqPush(BatchRing& ring, const Endpoint& endpoint, const ZmqSocketOptions& options,
                 Clock& clock, Probe& probe, PeerReports reports)
    : ring_(ring),
      endpoint_(endpoint),
      clock_(clock),
      batches_(probe.counter("batches_sent")),
      bytes_(probe.counter("bytes_sent")),
      wait_ns_(probe.counter("send_wait_ns")),
      outgoing_(std::make_unique<Outgoing>(ring.slots())),
      socket_(endpoint, options, std::move(reports)) {
  PENSTOCK_ASSERT(ring.readers() == 1 && options.role == ZmqSocketOptions::Role::push);
}

ZmqPush::~ZmqPush() = default;

void ZmqPush::run(const PushPlan& plan, std::stop_token stop) {
  Pace pace(clock_, plan.img_per_s);
  for (std::int64_t sent = 0; plan.batches == 0 || sent < plan.batches; ++sent) {
    ReadLease lease = ring_.next(0, stop);
    if (!lease) break;
    lease.await();
    pace.await(lease.batch().valid, stop);
    if (!send(std::move(lease), plan, stop)) return;
  }
  flush(plan, stop);
}

bool ZmqPush::send(ReadLease lease, const PushPlan& plan, const std::stop_token& stop) {
  const Batch batch = lease.batch();
  const BatchLayout layout(ring_.spec(), batch.valid);
  const std::span<std::byte> frame(batch.pixels.data() - BatchLayout::kPixelsAt, layout.size());
  const std::size_t label_bytes = layout.size() - layout.labels_at();
  Outgoing::Slot* slot = nullptr;
  {
    const std::lock_guard lock(outgoing_->mutex);
    slot = &outgoing_->slots[static_cast<std::size_t>(batch.slot)];
    slot->labels = std::as_writable_bytes(batch.labels).first(label_bytes);
    slot->moved_labels = frame.data() + layout.labels_at();
    std::memmove(frame.data() + layout.labels_at(), slot->labels.data(), label_bytes);
    layout.write_headers(frame);
    slot->lease = std::move(lease);
    ++outgoing_->held;
  }
  zmq::message_t message(frame.data(), frame.size(), Outgoing::give_back, slot);
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  const Time asked = clock_.now();
  while (!socket.send(message, zmq::send_flags::dontwait)) {
    const ZmqSocket::Wake wake = socket_.wait(plan.timeout, stop);
    if (wake == ZmqSocket::Wake::stopped) return false;
    if (wake == ZmqSocket::Wake::late) nobody_takes(plan.timeout);
  }
  wait_ns_.add((clock_.now() - asked).count());
  batches_.add();
  bytes_.add(static_cast<std::int64_t>(frame.size()));
  return true;
}

void ZmqPush::flush(const PushPlan& plan, const std::stop_token& stop) {
  {
    std::unique_lock lock(outgoing_->mutex);
    while (outgoing_->held > 0 && !stop.stop_requested()) {
      const std::size_t held = outgoing_->held;
      const bool progress = outgoing_->returned.wait_for(
          lock, stop, std::min<Nanoseconds>(plan.timeout, std::chrono::hours(24)),
          [&] { return outgoing_->held != held; });
      if (!progress && !stop.stop_requested()) nobody_takes(plan.timeout);
    }
  }
  // A receiver whose socket is full (libzmq 4.3) drops what it has not read of a connection that
  // ends. The kernel reports no event for "all was read", so it is asked.
  const Time started = clock_.now();
  while (socket_.has_unread_bytes() && !stop.stop_requested()) {
    if (clock_.now() - started > plan.timeout) nobody_takes(plan.timeout);
    clock_.sleep_until(clock_.now() + kUnreadPeriod, stop);
  }
  if (!stop.stop_requested()) socket_.linger(kLinger);
}

void ZmqPush::nobody_takes(Nanoseconds timeout) const {
  const ZmqSocket::Peers peers = socket_.peers();
  throw TimeoutError(
      "nobody took a batch at " + describe(endpoint_) + " within " + seconds_text(timeout) + "; " +
      (peers.joined == 0 ? "no consumer ever connected"
                         : std::to_string(peers.joined) + " consumers connected, " +
                               std::to_string(peers.left) + " went away") +
      (peers.refused == 0
           ? ""
           : "; " + std::to_string(peers.refused) + " tries to come in were refused") +
      "; start one, such as `penstock run --fake-location zmq-consume:endpoint=" + endpoint_.text +
      "`, or wait longer with --timeout");
}

}  // namespace penstock
