// SPDX-License-Identifier: Apache-2.0
// The data of a message, where it was received, for as long as somebody keeps it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace penstock {

struct Frame {
  using Owner = std::unique_ptr<void, void (*)(void*)>;
  std::span<const std::byte> bytes{};
  Owner owner{nullptr, [](void*) {}};  ///< frees the memory
};

}  // namespace penstock
