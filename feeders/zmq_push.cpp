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
#include "feeders/push_peers.h"

namespace penstock {
namespace {

/// Before the pixels, so that they stay aligned as Device::allocate promises.
constexpr std::size_t kLead = 4096;

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
      images_(probe.counter("images_sent")),
      wait_ns_(probe.counter("send_wait_ns")),
      feed_wait_ns_(probe.counter("feed_wait_ns")),
      outgoing_(std::make_unique<Outgoing>(ring.slots())),
      socket_(endpoint, options, std::move(reports)) {
  PENSTOCK_ASSERT(ring.readers() == 1 && options.role == ZmqSocketOptions::Role::push);
}

ZmqPush::~ZmqPush() = default;

void ZmqPush::run(const PushPlan& plan, std::stop_token stop) {
  Pace pace(clock_, plan.img_per_s);
  for (std::int64_t sent = 0; plan.batches == 0 || sent < plan.batches; ++sent) {
    ReadLease lease = next_batch(stop);
    if (!lease) break;
    pace.await(lease.batch().valid, stop);
    if (!send(std::move(lease), plan, stop)) return;
  }
  flush(plan, stop);
}

/// What it waits is the feeder's, unless that has no slot because nobody takes batches.
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
    if (wake == ZmqSocket::Wake::late) nobody_takes(endpoint_, socket_.peers(), plan.timeout);
  }
  wait_ns_.add((clock_.now() - asked).count());
  batches_.add();
  images_.add(batch.valid);
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
      if (!progress && !stop.stop_requested()) {
        nobody_takes(endpoint_, socket_.peers(), plan.timeout);
      }
    }
  }
  await_all_read(socket_, endpoint_, clock_, plan.timeout, stop);
}

}  // namespace penstock
