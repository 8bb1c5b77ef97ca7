// SPDX-License-Identifier: Apache-2.0
// The sending half of ZeroMQ feeding with image files: a source's samples go out as they are
// encoded, in messages of Penstock's own format (framed_format.md), for consumers to decode.
//
//   source -> one copy into a batch -> libzmq, which gives the batch's memory back once its bytes
//   are in the kernel
//
// They are pushed, or sent by credit, as far as the one consumer has room.
//
// Batches are filled and sent by one thread; libzmq's own sends them on meanwhile. What waits is
// bounded by the number of batches, whatever the hwm. Nothing is allocated for an image once all
// batches have had their largest size.
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
#include "feeders/credit_line.h"
#include "feeders/encoded_batch.h"
#include "feeders/feeder.h"
#include "feeders/zmq_push.h"
#include "feeders/zmq_socket.h"

namespace penstock {

class EncodedPush {
 public:
  struct Plan {
    std::size_t images = 64;  ///< of a message; the last one of finite data may have fewer
    std::size_t batches = 4;  ///< in memory: filled, waiting or under way
    bool checksum = false;    ///< messages have one of their bytes
    BadSamplePolicy on_bad_sample{};
    std::string name = "penstock serve";  ///< by which consumers know this producer
  };

  /// Binds or connects; `options.role` is push, or dealer to send by credit; `reports` are
  /// ZmqSocket's. `source` gives encoded images, and outlives this
  /// object, as clock and probe do.
  EncodedPush(Source& source, const Plan& plan, const Endpoint& endpoint,
              const ZmqSocketOptions& options, Clock& clock, Probe& probe,
              PeerReports reports = {});
  ~EncodedPush();

  /// Says who it is, and sends until the plan is done, the data end, or a stop is requested; unless
  /// stopped, it says that this was the end, and returns when the kernel has every byte. Called
  /// once. Counts as ZmqPush::run does, feed_wait_ns being the time in which batches are filled,
  /// and bad_samples. Throws what that throws, and DataError for samples that cannot be read, if
  /// none may be left out; by credit, what CreditLine does.
  void run(const PushPlan& plan, std::stop_token stop);

  const std::string& address() const noexcept { return socket_.address(); }
  /// Tries of consumers that had not the right key.
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
  const Endpoint endpoint_;
  Clock& clock_;
  Probe& probe_;
  Counter &batches_, &images_, &bytes_, &wait_ns_, &fill_ns_, &bad_samples_;
  const std::uint64_t producer_;
  Sample sample_;
  bool data_ended_ = false;
  std::uint64_t bad_in_a_row_ = 0;
  std::unique_ptr<Outgoing> outgoing_;
  ZmqSocket socket_;  // closes before what is above: libzmq gives back what it still holds
  std::optional<CreditLine> line_;  // empty: batches are pushed
};

}  // namespace penstock
