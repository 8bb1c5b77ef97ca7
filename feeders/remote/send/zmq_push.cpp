// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/send/zmq_push.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/pace.h"
#include "feeders/remote/send/push_peers.h"
#include "feeders/remote/wire/zmq_op.h"

namespace penstock::remote {
namespace {

/// Space before the pixels. It keeps them aligned as Device::allocate promises.
constexpr std::size_t kLead = 4096;

}  // namespace

Buffer FrameMemory::allocate(std::size_t bytes, MemoryKind kind) {
  const std::size_t size = kLead + bytes + BatchLayout::kLabelsHeader;
  Buffer& block = blocks_.emplace_back(host_.allocate(size, kind));
  return Buffer(block.bytes().data() + kLead, bytes, [](std::byte*) {});
}

/// The slots that libzmq holds. The thread that closes the last frame of a slot gives it back.
struct ZmqPush::Outgoing {
  struct Slot {
    Outgoing* owner = nullptr;
    ReadLease lease;
    std::size_t frames = 0;  // frames of this slot that libzmq holds
    Time free_since{};
  };

  Outgoing(std::size_t count, OutgoingMessages& of, const Clock& time)
      : messages(of), clock(time), slots(count) {
    for (Slot& slot : slots) {
      slot.owner = this;
      slot.free_since = clock.now();
    }
  }

  /// libzmq calls this when it no longer needs the bytes of a frame in a slot.
  static void give_back(void*, void* hint) {
    Slot& slot = *static_cast<Slot*>(hint);
    Outgoing& owner = *slot.owner;
    const std::lock_guard lock(owner.mutex);
    if (--slot.frames > 0) return;
    owner.messages.give_back(slot.lease.batch());
    slot.free_since = owner.clock.now();
    slot.lease = ReadLease();
    --owner.held;
    owner.returned.notify_all();
  }

  OutgoingMessages& messages;
  const Clock& clock;
  std::mutex mutex;
  std::condition_variable_any returned;
  // All below under mutex.
  std::vector<Slot> slots;
  std::size_t held = 0;
};

ZmqPush::ZmqPush(BatchRing& ring, const net::Endpoint& endpoint, const ZmqSocketOptions& options,
                 Clock& clock, Probe& probe, net::PeerReports reports,
                 std::unique_ptr<OutgoingMessages> messages)
    : ring_(ring),
      endpoint_(endpoint),
      clock_(clock),
      batches_(probe.counter("batches_sent")),
      bytes_(probe.counter("bytes_sent")),
      images_(probe.counter("images_sent")),
      wait_ns_(probe.counter("send_wait_ns")),
      feed_wait_ns_(probe.counter("feed_wait_ns")),
      messages_(messages ? std::move(messages)
                         : make_outgoing(MessageFormat::zmq_op, ring.spec(), clock)),
      outgoing_(std::make_unique<Outgoing>(ring.slots(), *messages_, clock)),
      socket_(endpoint, options, std::move(reports)) {
  PENSTOCK_ASSERT(ring.readers() == 1 && options.role == ZmqSocketOptions::Role::push);
}

ZmqPush::~ZmqPush() = default;

void ZmqPush::run(const PushPlan& plan, std::stop_token stop) {
  if (!send(messages_->hello(), nullptr, plan, stop)) return;
  Pace pace(clock_, plan.img_per_s);
  for (std::int64_t sent = 0; plan.batches == 0 || sent < plan.batches; ++sent) {
    ReadLease lease = next_batch(stop);
    if (!lease) break;
    const std::int32_t images = lease.batch().valid;
    pace.await(images, stop);
    // A loader of that pace has it ready only now.
    const Time ready = plan.img_per_s > 0 ? clock_.now() : lease.batch().offered;
    if (!send(std::move(lease), ready, plan, stop)) return;
    batches_.add();
    images_.add(images);
  }
  if (stop.stop_requested() || !send(messages_->end(), nullptr, plan, stop)) return;
  flush(plan, stop);
}

/// Counts the wait as time of the feeder, unless the feeder has no slot because no consumer takes
/// batches.
ReadLease ZmqPush::next_batch(const std::stop_token& stop) {
  const bool has_slot = [&] {
    const std::lock_guard lock(outgoing_->mutex);
    return outgoing_->held < outgoing_->slots.size();
  }();
  const Time asked = clock_.now();
  ReadLease lease = ring_.next(0, stop);
  if (lease) lease.await();
  (has_slot ? feed_wait_ns_ : wait_ns_).add((clock_.now() - asked).count());
  return lease;
}

bool ZmqPush::send(ReadLease lease, Time ready, const PushPlan& plan, const std::stop_token& stop) {
  const Batch batch = lease.batch();
  Outgoing::Slot* const slot = &outgoing_->slots[static_cast<std::size_t>(batch.slot)];
  Time begun;
  {
    const std::lock_guard lock(outgoing_->mutex);
    begun = slot->free_since;
  }
  // A loader begins a batch when it has finished the previous one and has room.
  begun = std::min(ready, std::max(begun, last_ready_));
  last_ready_ = ready;
  const std::span<const OutgoingFrame> frames = messages_->batch(batch, begun, ready);
  {
    const std::lock_guard lock(outgoing_->mutex);
    for (const OutgoingFrame& frame : frames) slot->frames += frame.in_slot ? 1 : 0;
    slot->lease = std::move(lease);
    ++outgoing_->held;
  }
  return send(frames, slot, plan, stop);
}

/// Sends all frames of a message; `frames` may be empty.
bool ZmqPush::send(std::span<const OutgoingFrame> frames, void* slot, const PushPlan& plan,
                   const std::stop_token& stop) {
  if (frames.empty()) return true;
  const auto message_of = [&](const OutgoingFrame& frame) {
    return frame.in_slot
               ? zmq::message_t(frame.bytes.data(), frame.bytes.size(), Outgoing::give_back, slot)
               : zmq::message_t(frame.bytes.data(), frame.bytes.size());
  };
  messages_->stamp();
  std::array<zmq::message_t, kMaxMessageFrames> messages;
  PENSTOCK_ASSERT(frames.size() <= messages.size());
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    messages[i] = message_of(frames[i]);
    bytes += frames[i].bytes.size();
  }
  const auto flags = [&](std::size_t i) {
    return i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
  };
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  const CountedWait wait(wait_ns_, clock_);
  while (!socket.send(messages[0], flags(0) | zmq::send_flags::dontwait)) {
    const ZmqSocket::Wake wake = socket_.wait(plan.timeout, stop);
    if (wake == ZmqSocket::Wake::stopped) return false;
    if (wake == ZmqSocket::Wake::late) nobody_takes(endpoint_, socket_.peers(), plan.timeout);
    if (frames[0].in_slot) continue;
    messages_->stamp();
    messages[0] = message_of(frames[0]);
  }
  // The peer that accepted the first frame accepts the others without a wait. If it has gone,
  // libzmq drops them.
  for (std::size_t i = 1; i < frames.size(); ++i) {
    static_cast<void>(socket.send(messages[i], flags(i)));
  }
  bytes_.add(static_cast<std::int64_t>(bytes));
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
      if (!progress && !stop.stop_requested()) {
        nobody_takes(endpoint_, socket_.peers(), plan.timeout);
      }
    }
  }
  await_all_read(socket_, endpoint_, clock_, plan.timeout, stop);
}

}  // namespace penstock::remote
