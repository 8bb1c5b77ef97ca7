// SPDX-License-Identifier: Apache-2.0
#include "feeders/push_peers.h"

#include <chrono>
#include <string>

#include "dataflow/error.h"

namespace penstock {
namespace {

/// Between two looks at whether the receiver has read everything, after the last batch.
constexpr Nanoseconds kUnreadPeriod = std::chrono::milliseconds(5);
/// So many in a row have to find nothing.
constexpr int kLooks = 3;

/// libzmq may hold the last bytes of small messages in a buffer of its own.
constexpr std::chrono::milliseconds kLinger{1000};

}  // namespace

void nobody_takes(const Endpoint& endpoint, const ZmqSocket::Peers& peers, Nanoseconds timeout) {
  throw TimeoutError(
      "nobody took a batch at " + describe(endpoint) + " within " + seconds_text(timeout) + "; " +
      (peers.joined == 0 ? "no consumer ever connected"
                         : std::to_string(peers.joined) + " consumers connected, " +
                               std::to_string(peers.left) + " went away") +
      (peers.refused == 0
           ? ""
           : "; " + std::to_string(peers.refused) + " tries to come in were refused") +
      "; start one, such as `penstock run --fake-location zmq-consume:endpoint=" + endpoint.text +
      "`, or wait longer with --timeout");
}

void await_all_read(ZmqSocket& socket, const Endpoint& endpoint, Clock& clock, Nanoseconds timeout,
                    const std::stop_token& stop) {
  // A receiver whose socket is full (libzmq 4.3) drops what it has not read of a connection that
  // ends. The kernel reports no event for "all was read", so it is asked, and asked again, as what
  // libzmq holds may follow what was read.
  const Time started = clock.now();
  for (int looks = 0; looks < kLooks && !stop.stop_requested();
       looks = socket.has_unread_bytes() ? 0 : looks + 1) {
    if (clock.now() - started > timeout) nobody_takes(endpoint, socket.peers(), timeout);
    clock.sleep_until(clock.now() + kUnreadPeriod, stop);
  }
  if (!stop.stop_requested()) socket.linger(kLinger);
}

}  // namespace penstock
