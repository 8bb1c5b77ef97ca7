// SPDX-License-Identifier: Apache-2.0
// The data of a received message, without a copy. The memory is freed with its owner.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace penstock::cluster {

struct Frame {
  using Owner = std::unique_ptr<void, void (*)(void*)>;
  std::span<const std::byte> bytes{};
  Owner owner{nullptr, [](void*) {}};  ///< frees the memory
};

}  // namespace penstock::cluster
