// SPDX-License-Identifier: Apache-2.0
// Point-to-point exchange between the ranks of a run. All-reduce algorithms are written with it. An
// implementation only moves bytes; it knows neither algorithms nor element types.
//
// A Link belongs to one rank and is used by one thread at a time. Messages between two ranks arrive
// in the order in which they were sent; there are no tags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/collective.h"

namespace penstock::collectives {

/// The sender and the receiver use the same size. An empty span is no message: the call sends
/// nothing and does not wait. Calls block until their memory may be used again. A send may wait for
/// its receive, so two ranks that send to each other need send_receive.
///
/// Each call throws Error on a stop request or if the sizes differ, and TimeoutError if the peer
/// does not take part within the link's timeout. Messages name both ranks. After an exception the
/// ranks are out of step, and the links of all ranks are unusable.
class Link {
 public:
  virtual ~Link() = default;
  virtual World world() const noexcept = 0;
  /// Sends and receives at once, with one peer or two. `to` and `from` are ranks other than this
  /// one. The spans do not overlap.
  virtual void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                            std::span<std::byte> received) = 0;
  void send(std::int32_t to, std::span<const std::byte> bytes) { send_receive(to, bytes, to, {}); }
  void receive(std::int32_t from, std::span<std::byte> bytes) {
    send_receive(from, {}, from, bytes);
  }
};

}  // namespace penstock::collectives
