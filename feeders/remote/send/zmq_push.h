// SPDX-License-Identifier: Apache-2.0
// The sending half of ZeroMQ feeding: batches of a ring go out as messages without being copied, in
// the formats of outgoing_messages.h.
//
// The slot belongs to libzmq from send until its bytes are in the kernel; then libzmq's own thread
// gives it back to the ring. What waits to be sent is thus bounded by the ring's slots, whatever
// the hwm.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/device.h"
#include "dataflow/probe.h"
#include "feeders/outgoing_messages.h"
#include "feeders/zmq_socket.h"

namespace penstock {

/// Memory of a ring whose slots are sent as they lie, with room before and behind what the ring
/// sees. Lends the streams and events of `host`, which
/// outlives it; it outlives what it allocates.
class FrameMemory final : public Device {
 public:
  explicit FrameMemory(Device& host) : host_(host) {}
  Buffer allocate(std::size_t bytes, MemoryKind) override;
  std::unique_ptr<Stream> make_stream() override { return host_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return host_.make_event(); }

 private:
  Device& host_;
  std::vector<Buffer> blocks_;
};

struct PushPlan {
  std::int64_t batches = 0;  ///< send so many; 0: for ever
  double img_per_s = 0;      ///< at the pace of such a loader; 0: as fast as the peer takes them
  Nanoseconds timeout{};     ///< how long no peer may take a batch
};

class ZmqPush {
 public:
  /// Binds or connects; `reports` are ZmqSocket's. Without `messages` they are of the format
  /// zmq_op. `ring` has one reader and its slots in FrameMemory, and outlives this object, whose
  /// destructor gives all slots back.
  ZmqPush(BatchRing& ring, const Endpoint& endpoint, const ZmqSocketOptions& options, Clock& clock,
          Probe& probe, PeerReports reports = {},
          std::unique_ptr<OutgoingMessages> messages = nullptr);
  ~ZmqPush();

  /// Sends until the plan is done, the ring ends, or a stop is requested; unless stopped, returns
  /// when the kernel has every byte. Called once. Counts batches_sent, images_sent, bytes_sent,
  /// send_wait_ns, the time in which nobody took a batch, and feed_wait_ns, that in which there was
  /// none. Throws TimeoutError, what the ring was failed with, and
  /// ConfigError where the consumer that this side connects to will never let it in.
  void run(const PushPlan& plan, std::stop_token stop);

  const std::string& address() const noexcept { return socket_.address(); }
  /// Tries of consumers that had not the right key.
  std::int64_t refused() const noexcept { return socket_.peers().refused; }

 private:
  struct Outgoing;
  ReadLease next_batch(const std::stop_token& stop);
  bool send(ReadLease lease, Time ready, const PushPlan& plan, const std::stop_token& stop);
  bool send(std::span<const OutgoingFrame> frames, void* slot, const PushPlan& plan,
            const std::stop_token& stop);
  void flush(const PushPlan& plan, const std::stop_token& stop);

  BatchRing& ring_;
  const Endpoint endpoint_;
  Clock& clock_;
  Counter &batches_, &bytes_, &images_, &wait_ns_, &feed_wait_ns_;
  std::unique_ptr<OutgoingMessages> messages_;
  Time last_ready_{};  // when the last batch that was sent was complete
  std::unique_ptr<Outgoing> outgoing_;
  ZmqSocket socket_;  // closes first: libzmq gives back what it still holds
};

}  // namespace penstock
