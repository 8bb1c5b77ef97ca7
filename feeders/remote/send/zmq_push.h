// SPDX-License-Identifier: Apache-2.0
// Sends batches of a ring over ZeroMQ without a copy, in the formats of outgoing_messages.h.
//
// libzmq holds the slot from send until its bytes are in the kernel. Then libzmq's thread gives it
// back to the ring. So the number of slots limits what waits to be sent, whatever the hwm.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/device.h"
#include "dataflow/probe.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/send/outgoing_messages.h"

namespace penstock::remote {

/// Memory of a ring whose slots are sent without a copy, with extra room before and after what the
/// ring sees. Uses the streams and events of `host`, which outlives this object. This object
/// outlives what it allocates.
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
  std::int64_t batches = 0;  ///< batches to send; 0: no limit
  double img_per_s = 0;      ///< pace of a loader to imitate; 0: as fast as the peer takes
  Nanoseconds timeout{};     ///< how long to wait for a peer to take a batch
};

class ZmqPush {
 public:
  /// Binds or connects; `reports` go to ZmqSocket. `messages` defaults to format zmq_op. `ring` has
  /// one reader and its slots in FrameMemory. It outlives this object, whose destructor gives all
  /// slots back.
  ZmqPush(BatchRing& ring, const net::Endpoint& endpoint, const ZmqSocketOptions& options,
          Clock& clock, Probe& probe, net::PeerReports reports = {},
          std::unique_ptr<OutgoingMessages> messages = nullptr);
  ~ZmqPush();

  /// Sends until the plan is done, the ring ends, or a stop is requested. Unless stopped, it
  /// returns when the kernel has every byte. Call once. Counts batches_sent, images_sent,
  /// bytes_sent, send_wait_ns (time in which no consumer took a batch), and feed_wait_ns (time in
  /// which there was no batch). Throws TimeoutError, the failure of the ring, and ConfigError if
  /// the consumer that this side connects to permanently refuses it.
  void run(const PushPlan& plan, std::stop_token stop);

  const std::string& address() const noexcept { return socket_.address(); }
  /// Connection attempts of consumers with a wrong key.
  std::int64_t refused() const noexcept { return socket_.peers().refused; }

 private:
  struct Outgoing;
  ReadLease next_batch(const std::stop_token& stop);
  bool send(ReadLease lease, Time ready, const PushPlan& plan, const std::stop_token& stop);
  bool send(std::span<const OutgoingFrame> frames, void* slot, const PushPlan& plan,
            const std::stop_token& stop);
  void flush(const PushPlan& plan, const std::stop_token& stop);

  BatchRing& ring_;
  const net::Endpoint endpoint_;
  Clock& clock_;
  Counter &batches_, &bytes_, &images_, &wait_ns_, &feed_wait_ns_;
  std::unique_ptr<OutgoingMessages> messages_;
  Time last_ready_{};  // when the last sent batch was complete
  std::unique_ptr<Outgoing> outgoing_;
  ZmqSocket socket_;  // closes first: libzmq gives back what it holds
};

}  // namespace penstock::remote
