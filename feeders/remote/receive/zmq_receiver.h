// SPDX-License-Identifier: Apache-2.0
// One socket of zmq-consume: whole messages off it, who sent too many bad ones cut off, and what is
// known where nothing comes.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/probe.h"
#include "feeders/zmq_consume_plan.h"
#include "feeders/zmq_message.h"
#include "feeders/zmq_socket.h"

namespace penstock {

class ZmqReceiver {
 public:
  /// Of the endpoint number `index` of the plan; the probe outlives it. Throws ConfigError.
  ZmqReceiver(const ConsumePlan& plan, std::size_t index, Probe& probe);

  /// The next message, if one is there.
  bool receive(ZmqMessage& message);
  /// Looks who came and went, and ends connections whose bytes pile up outside of messages.
  void look();
  /// Names those who came and went without a message. While none comes.
  void say_mute_peers();
  /// Whether bytes can pile up that libzmq does not count.
  bool may_be_flooded() const noexcept { return endpoint_.endpoint.kind == Endpoint::Kind::tcp; }
  ZmqSocket& socket() noexcept { return socket_; }
  /// As the user wrote it.
  const std::string& endpoint() const noexcept { return endpoint_.endpoint.text; }
  std::int64_t received() const noexcept { return received_; }

  /// "ipc://feed (in /home/me)", "this side binds".
  std::string place() const { return describe(endpoint_.endpoint); }
  std::string side() const { return endpoint_.bind ? "this side binds" : "this side connects"; }
  /// Tries to come in that were refused; empty: none.
  std::string refusals() const;
  /// Why there may be no messages: nobody there, gone, or silent.
  std::string silence() const;
  /// "start one, such as `penstock serve ...`".
  std::string advice(const BatchSpec& spec) const;

 private:
  /// Of those libzmq tells nothing.
  bool is_inproc() const noexcept { return endpoint_.endpoint.kind == Endpoint::Kind::inproc; }

  const ConsumeEndpoint endpoint_;
  const std::size_t index_;
  const std::int64_t max_message_, flood_bytes_;
  Probe& probe_;
  Counter &cut_off_, &mute_;
  ZmqSocket socket_;
  std::int64_t received_ = 0;
};

}  // namespace penstock
