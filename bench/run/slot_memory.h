// SPDX-License-Identifier: Apache-2.0
// Allocates the slots of a host ring in the pages that --huge-pages names, and reports their place.
#pragma once

#include <string>

#include "bench/run/runner.h"
#include "dataflow/batch_ring.h"
#include "dataflow/device.h"
#include "dataflow/probe.h"

namespace penstock {

/// A device that allocates slots in the chosen pages. If explicit huge pages are not available, or
/// the device's driver must allocate the memory itself, it uses the device's memory and adds a
/// note.
class SlotMemory final : public Device {
 public:
  /// `pages` is a value of --huge-pages. `device` and `probe` must outlive this object.
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

/// Adds a note and the facts slots_mib, slots_huge_page_percent, and slot_0_node and so on if the
/// kernel reports them.
void add_slot_map(RunResult& result, const BatchRing& ring);

}  // namespace penstock
