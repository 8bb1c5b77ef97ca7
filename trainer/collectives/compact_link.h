// SPDX-License-Identifier: Apache-2.0
// A link that sends floats as 16 bits: it rounds them before sending and widens them on arrival.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/collectives/link.h"
#include "trainer/wire_format.h"

namespace penstock::collectives {

/// Halves the bytes. Messages contain whole floats. An algorithm that adds between messages adds in
/// f32, and each message rounds the sum again. Values that a rank keeps are not rounded, so ranks
/// agree only after each has rounded its values.
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
  /// Rounds into memory of the link.
  std::span<const std::byte> narrowed(std::span<const std::byte> floats);
  std::span<std::byte> room_for(std::span<const std::byte> floats);
  void widen_into(std::span<std::byte> floats) const;

  Link& link_;
  const WireFormat format_;
  std::vector<std::byte> outgoing_, incoming_;  // grow on request and never shrink
};

}  // namespace penstock::collectives
