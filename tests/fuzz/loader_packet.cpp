// SPDX-License-Identifier: Apache-2.0
// Packets from the child process of a Python loader. The input's first byte chooses the packet: '0'
// the start, '1' the first batch's shape, '2' the shared memory, '3' a batch, '4' a profile, '5'
// numbers of batches. The rest is the packet.
#include "feeders/python/loader_messages.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

constexpr std::uint32_t kSlot = 2;  // that was asked for
constexpr std::size_t kSlotBytes = 152;
constexpr Nanoseconds kLongest = std::chrono::hours(24 * 14);

void check_batches(const python::LoaderBatches& batches) {
  ensure(batches.images > 0 && batches.image.height > 0 && batches.image.width > 0 &&
             batches.image.channels > 0,
         "a batch without pixels");
  ensure(batches.opaque_bytes >= 0 && batches.outline.find('\x1b') == std::string::npos,
         "an outline that controls terminals");
  ensure(batches.workers.value_or(0) >= 0, "fewer workers than none");
}

void check_batch(const python::LoaderBatch& batch, std::int32_t images) {
  ensure(batch.slot == kSlot && batch.images > 0 && batch.images <= images, "a batch in no slot");
  for (const Nanoseconds time :
       {batch.getting, batch.getting_cpu, batch.converting, batch.waiting, batch.loading,
        batch.loading_cpu, batch.collating, batch.queued, batch.pinning}) {
    ensure(time >= Nanoseconds{} && time < kLongest, "an impossible time");
  }
}

}  // namespace

std::size_t loader_packet(std::span<const std::byte> input) try {
  if (input.empty()) return 0;
  const char kind = static_cast<char>(input.front());
  const std::string_view packet = as_text(input.subspan(1));
  python::LoaderBatches known;
  known.images = 2;
  known.image = {4, 6, 3};
  switch (kind) {
    case '0':
      ensure(python::parse_start(packet) > 0, "no process number");
      return 1;
    case '1':
      check_batches(python::parse_batches(packet));
      return 1;
    case '2':
      ensure(python::parse_memory(packet, kSlotBytes) >= kSlotBytes, "slots that are too small");
      return 1;
    case '3':
      check_batch(python::parse_batch(packet, known, kSlot), known.images);
      ensure(!packet.starts_with("{\""), "a message taken for a batch");
      return 1;
    case '4':
      for (const auto& [name, time] :
           python::parse_profile(packet).value_or(python::LoadProfile{}).code) {
        ensure(name.find('\x1b') == name.npos, "a control character in a name");
        ensure(time >= Nanoseconds{} && time < kLongest, "an impossible time");
      }
      return 1;
    case '5':
      for (const auto& [name, value] :
           python::parse_traits(packet).value_or(python::LoaderTraits{})) {
        ensure(name.find('\x1b') == name.npos, "a control character in a name");
        ensure(value >= 0, "a number below 0");
      }
      return 1;
    default:
      return 0;
  }
} catch (const ConfigError&) {  // what the loader says, or a number out of range
  return 0;
}

}  // namespace penstock::fuzz
