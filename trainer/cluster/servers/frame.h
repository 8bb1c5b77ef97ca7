// SPDX-License-Identifier: Apache-2.0
// A received message, whose data were not copied. Their memory is freed with its owner.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace penstock::cluster {

struct Frame {
  using Owner = std::unique_ptr<void, void (*)(void*)>;
  std::span<const std::byte> bytes{};
  Owner owner{nullptr, [](void*) {}};  ///< frees the memory
};

/// The first two of `frames` frames of a message, from the peer with that name and (if known) that
/// connection.
struct Received {
  std::size_t socket = 0;
  std::string peer{}, address{};
  int connection = -1;
  std::size_t frames = 0;
  std::span<const std::byte> header{};
  Frame data{};
};

}  // namespace penstock::cluster
