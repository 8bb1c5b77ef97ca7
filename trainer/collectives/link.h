// SPDX-License-Identifier: Apache-2.0
// Point-to-point exchange between the ranks of a run: what all-reduce algorithms are written in.
// An implementation only moves bytes; it knows neither algorithms nor element types.
//
// A Link belongs to one rank and is used by one thread at a time. Messages between two ranks arrive
// in the order in which they were sent; there are no tags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/collective.h"

namespace penstock {

/// What is received has the size that was sent. An empty span is no message: nothing is sent or
/// waited for. Calls block until their memory may be used again, and a send may wait for its
/// receive, so that two ranks which send to each other need send_receive.
///
/// Each call throws Error on a stop request, and where sizes differ, and TimeoutError where the
/// peer does not take part within the link's time-out. Messages name both ranks. After one, the
/// ranks are no longer in step and the links of all are of no further use.
class Link {
 public:
  virtual ~Link() = default;
  virtual World world() const noexcept = 0;
  /// `to` and `from` are other ranks than this one.
  virtual void send(std::int32_t to, std::span<const std::byte> bytes) = 0;
  virtual void receive(std::int32_t from, std::span<std::byte> bytes) = 0;
  /// Both at once, with the same rank or with two. The spans do not overlap.
  virtual void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                            std::span<std::byte> received) = 0;
};

}  // namespace penstock
