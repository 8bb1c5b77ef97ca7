// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/compact_link.h"

#include "dataflow/error.h"

namespace penstock::collectives {
namespace {

std::size_t count_of(std::span<const std::byte> floats) {
  PENSTOCK_ASSERT(floats.size() % sizeof(float) == 0);
  return floats.size() / sizeof(float);
}

std::span<std::byte> grown(std::vector<std::byte>& memory, std::size_t bytes) {
  if (memory.size() < bytes) memory.resize(bytes);
  return std::span(memory).first(bytes);
}

}  // namespace

void CompactLink::send(std::int32_t to, std::span<const std::byte> bytes) {
  link_.send(to, narrowed(bytes));
}

void CompactLink::receive(std::int32_t from, std::span<std::byte> bytes) {
  link_.receive(from, room_for(bytes));
  widen_into(bytes);
}

void CompactLink::send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                               std::span<std::byte> received) {
  link_.send_receive(to, narrowed(sent), from, room_for(received));
  widen_into(received);
}

std::span<const std::byte> CompactLink::narrowed(std::span<const std::byte> floats) {
  const std::size_t count = count_of(floats);
  const std::span<std::byte> wire = grown(outgoing_, count * element_bytes(format_));
  narrow(format_, {reinterpret_cast<const float*>(floats.data()), count}, wire);
  return wire;
}

std::span<std::byte> CompactLink::room_for(std::span<const std::byte> floats) {
  return grown(incoming_, count_of(floats) * element_bytes(format_));
}

void CompactLink::widen_into(std::span<std::byte> floats) const {
  const std::size_t count = count_of(floats);
  widen(format_, std::span(incoming_).first(count * element_bytes(format_)),
        {reinterpret_cast<float*>(floats.data()), count});
}

}  // namespace penstock::collectives
