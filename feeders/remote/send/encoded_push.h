// SPDX-License-Identifier: Apache-2.0
// Sends image files over ZeroMQ: the encoded samples of a source, in messages of Penstock's own
// format (framed_format.md). Consumers decode them.
//
//   source -> one copy into a batch -> libzmq -> kernel; then libzmq returns the batch's memory
//
// Batches are pushed, or sent with credit while the one consumer has room.
//
// One thread fills and sends batches, and libzmq's thread transmits them meanwhile. The number of
// batches limits what waits, whatever the hwm. When all batches have reached their largest size, no
// image needs an allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataflow/probe.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "feeders/remote/credit/producer_session.h"
#include "feeders/remote/receive/encoded_batch.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/send/zmq_push.h"

namespace penstock::remote {

class EncodedPush {
 public:
  struct Plan {
    std::size_t images = 64;  ///< per message; the last message of finite data may have fewer
    std::size_t batches = 4;  ///< in memory: being filled, waiting or in transit
    bool checksum = false;    ///< each message carries a checksum
    BadSamplePolicy on_bad_sample{};
    std::string name = "penstock serve";  ///< name of this producer for consumers
  };

  /// Binds or connects. `options.role` must be push, or dealer to send with credit; `reports` go to
  /// ZmqSocket. `source` gives encoded images. Source, clock and probe outlive this object.
  EncodedPush(Source& source, const Plan& plan, const net::Endpoint& endpoint,
              const ZmqSocketOptions& options, Clock& clock, Probe& probe,
              net::PeerReports reports = {});
  ~EncodedPush();

  /// Sends a hello, then batches until the plan is done, the data end, or a stop is requested.
  /// Unless stopped, it sends an end and returns when the kernel has every byte. Call once. Counts
  /// what ZmqPush::run() counts, where feed_wait_ns is the time to fill batches, and bad_samples.
  /// Throws what ZmqPush::run() throws; DataError if a sample cannot be read and may not be
  /// skipped; with credit, what ProducerSession throws.
  void run(const PushPlan& plan, std::stop_token stop);

  const std::string& address() const noexcept { return socket_.address(); }
  /// Connection attempts of consumers with a wrong key.
  std::int64_t refused() const noexcept { return socket_.peers().refused; }

 private:
  struct Outgoing;
  struct Held;

  Held* free_batch(const PushPlan& plan, const std::stop_token& stop);
  bool fill(EncodedBatch& batch, const std::stop_token& stop);
  void leave_out(const std::string& why);
  bool send(Held& held, FramedHeader header, const PushPlan& plan, const std::stop_token& stop);
  bool send_hello(const PushPlan& plan, const std::stop_token& stop);
  bool send_end(const PushPlan& plan, const std::stop_token& stop);
  bool send_plain(FramedHeader header, std::string_view text, const PushPlan& plan,
                  const std::stop_token& stop);
  bool await_peer(const PushPlan& plan, const std::stop_token& stop);
  bool await_credit(const PushPlan& plan, const std::stop_token& stop);
  FramedHeader header(FramedKind kind) const noexcept;
  FramedHeader hello_header() const noexcept;

  Source& source_;
  const Plan plan_;
  const net::Endpoint endpoint_;
  Clock& clock_;
  Probe& probe_;
  Counter &batches_, &images_, &bytes_, &wait_ns_, &fill_ns_, &bad_samples_;
  const std::uint64_t producer_;
  Sample sample_;
  bool data_ended_ = false;
  std::uint64_t bad_in_a_row_ = 0;
  std::unique_ptr<Outgoing> outgoing_;
  ZmqSocket socket_;  // closes before the members above: libzmq gives back what it holds
  std::optional<ProducerSession> line_;  // empty: batches are pushed
};

}  // namespace penstock::remote
