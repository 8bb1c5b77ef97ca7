// SPDX-License-Identifier: Apache-2.0
// The memory of a host ring's slots: pages as --huge-pages says, and a map of where they lie.
#pragma once

#include <string>

#include "bench/runner.h"
#include "dataflow/batch_ring.h"
#include "dataflow/device.h"
#include "dataflow/probe.h"

namespace penstock {

/// A device's, but for the pages of what it allocates. Where explicit ones are not to be had, or
/// the device's driver has to allocate itself, a note says so and the device's own are taken.
class SlotMemory final : public Device {
 public:
  /// `pages` is a value of --huge-pages. `device` and `probe` outlive this object.
  SlotMemory(Device& device, std::string pages, Probe& probe)
      : device_(device), pages_(std::move(pages)), probe_(probe) {}
  Buffer allocate(std::size_t bytes, MemoryKind kind) override;
  bool takes_any_memory() const noexcept override { return device_.takes_any_memory(); }
  std::unique_ptr<Stream> make_stream() override { return device_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }

 private:
  void say_once(const char* sentence);

  Device& device_;
  const std::string pages_;
  Probe& probe_;
  bool said_ = false;
};

/// Adds a note, and facts slots_mib, slots_huge_page_percent, and slot_0_node and so on where the
/// kernel tells.
void add_slot_map(RunResult& result, const BatchRing& ring);

}  // namespace penstock
