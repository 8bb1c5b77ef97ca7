// SPDX-License-Identifier: Apache-2.0
// A link over which floats travel as 16 bits: rounded when they are sent, widened when they arrive.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/collectives/link.h"
#include "trainer/collectives/wire_format.h"

namespace penstock {

/// Moves half the bytes. Messages are of whole floats. An algorithm that adds between messages adds
/// in f32 and has its sum rounded again with each message; what a rank keeps to itself it has not
/// rounded, so that ranks agree once each has rounded what it has.
class CompactLink final : public Link {
 public:
  /// `link` is borrowed. The format is not f32.
  CompactLink(Link& link, WireFormat format) : link_(link), format_(format) {}

  World world() const noexcept override { return link_.world(); }
  void send(std::int32_t to, std::span<const std::byte> bytes) override;
  void receive(std::int32_t from, std::span<std::byte> bytes) override;
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override;

 private:
  /// Rounded, in memory of the link's.
  std::span<const std::byte> narrowed(std::span<const std::byte> floats);
  std::span<std::byte> room_for(std::span<const std::byte> floats);
  void widen_into(std::span<std::byte> floats) const;

  Link& link_;
  const WireFormat format_;
  std::vector<std::byte> outgoing_, incoming_;  // grow to what is needed and keep it
};

}  // namespace penstock
