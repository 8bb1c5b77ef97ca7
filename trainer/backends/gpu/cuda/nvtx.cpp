// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace penstock::gpu {
namespace {

/// NVTX looks for tools only at its first call; without a tool there is no domain.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t ours = nvtxDomainCreateA("penstock");
  return ours;
}

void push(const char* name) noexcept {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &range);
}

void pop() noexcept { nvtxDomainRangePop(domain()); }

constexpr MarkFunctions kMarks{.push = push, .pop = pop};

}  // namespace

const MarkFunctions* nvtx_marks() noexcept { return domain() != nullptr ? &kMarks : nullptr; }

}  // namespace penstock::gpu
