// SPDX-License-Identifier: Apache-2.0
// One socket of zmq-consume: receives whole messages, cuts off senders of too many bad ones, and
// explains why no message comes.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/probe.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/zmq_consume_plan.h"

namespace penstock::remote {

class ZmqReceiver {
 public:
  /// Opens endpoint number `index` of the plan; the probe outlives this object. Throws ConfigError.
  ZmqReceiver(const ConsumePlan& plan, std::size_t index, Probe& probe);

  /// Receives the next message; false: none is there.
  bool receive(ZmqMessage& message);
  /// Checks which peers came and went, and closes connections that send many bytes outside
  /// messages.
  void look();
  /// Names peers that came and went without a message. Call while no message comes.
  void say_mute_peers();
  /// Whether a peer can send bytes that libzmq does not count.
  bool may_be_flooded() const noexcept {
    return endpoint_.endpoint.kind == net::Endpoint::Kind::tcp;
  }
  ZmqSocket& socket() noexcept { return socket_; }
  /// As the user wrote it.
  const std::string& endpoint() const noexcept { return endpoint_.endpoint.text; }
  std::int64_t received() const noexcept { return received_; }

  /// "ipc://feed (in /home/me)", "this side binds".
  std::string place() const { return net::describe(endpoint_.endpoint); }
  std::string side() const { return endpoint_.bind ? "this side binds" : "this side connects"; }
  /// Describes refused connection attempts; empty: none.
  std::string refusals() const;
  /// Explains why no message comes: no peer, peers gone, or peers silent.
  std::string silence() const;
  /// Advice such as "start one, such as `penstock serve ...`".
  std::string advice(const BatchSpec& spec) const;

 private:
  /// libzmq reports no peers for inproc.
  bool is_inproc() const noexcept { return endpoint_.endpoint.kind == net::Endpoint::Kind::inproc; }

  const ConsumeEndpoint endpoint_;
  const std::size_t index_;
  const std::int64_t max_message_, flood_bytes_;
  Probe& probe_;
  Counter &cut_off_, &mute_;
  ZmqSocket socket_;
  std::int64_t received_ = 0;
};

}  // namespace penstock::remote
