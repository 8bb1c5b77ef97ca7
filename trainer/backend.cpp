// SPDX-License-Identifier: Apache-2.0
#include "trainer/backend.h"

#include <utility>

#include "trainer/collective.h"

namespace penstock {

std::string_view to_string(Precision precision) {
  constexpr std::string_view kNames[] = {"fp32", "tf32", "fp16", "bf16"};
  return kNames[static_cast<std::size_t>(precision)];
}

std::unique_ptr<CollectiveGroup> Backend::make_group(std::span<Device* const> devices,
                                                     const GroupSpec& spec, Clock& clock,
                                                     std::stop_token stop) {
  if (spec.processes != nullptr) return spec.processes->make_host_group();
  return make_thread_group(devices, spec.exchange, clock, std::move(stop));
}

}  // namespace penstock
