// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/send/push_peers.h"

#include <chrono>
#include <string>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

/// Time between checks whether the receiver has read everything, after the last batch.
constexpr Nanoseconds kUnreadPeriod = std::chrono::milliseconds(5);
/// This many checks in a row must find no unread bytes.
constexpr int kLooks = 3;

/// libzmq may keep the last bytes of small messages in a buffer.
constexpr std::chrono::milliseconds kLinger{1000};

}  // namespace

void nobody_takes(const net::Endpoint& endpoint, const ZmqSocket::Peers& peers,
                  Nanoseconds timeout) {
  throw TimeoutError(
      "no consumer took a batch at " + net::describe(endpoint) + " within " +
      seconds_text(timeout) + "; " +
      (peers.joined == 0 ? "no consumer ever connected"
                         : std::to_string(peers.joined) + " consumers connected, " +
                               std::to_string(peers.left) + " went away") +
      (peers.refused == 0 ? ""
                          : "; " + std::to_string(peers.refused) + " connections were refused") +
      "; start one, such as `penstock run --fake-location zmq-consume:endpoint=" + endpoint.text +
      "`, or wait longer with --timeout");
}

void await_all_read(ZmqSocket& socket, const net::Endpoint& endpoint, Clock& clock,
                    Nanoseconds timeout, const std::stop_token& stop) {
  // When a connection ends, a receiver with a full socket (libzmq 4.3) drops what it has not read.
  // The kernel has no event for "all was read", so this polls. It polls several times in a row,
  // because libzmq may send more after the kernel's bytes were read.
  const Time started = clock.now();
  for (int looks = 0; looks < kLooks && !stop.stop_requested();
       looks = socket.has_unread_bytes() ? 0 : looks + 1) {
    if (clock.now() - started > timeout) nobody_takes(endpoint, socket.peers(), timeout);
    clock.sleep_until(clock.now() + kUnreadPeriod, stop);
  }
  if (!stop.stop_requested()) socket.linger(kLinger);
}

}  // namespace penstock::remote
