// SPDX-License-Identifier: Apache-2.0
// What a batch is: its agreed shape, and a view of one slot that holds it. Plain values; no owner.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

enum class DType : std::uint8_t { u8, i32, f16, bf16, f32 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::u8:
      return 1;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::f32:
      return 4;
  }
  return 0;
}

struct ImageShape {
  std::int32_t height = 224, width = 224, channels = 3;

  constexpr std::size_t elements() const noexcept {
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) *
           static_cast<std::size_t>(channels);
  }
  bool operator==(const ImageShape&) const = default;
};

/// Agreed before any thread starts; constant for the run.
struct BatchSpec {
  std::int32_t images = 64;  ///< N, per device
  ImageShape image{};
  DType pixel = DType::u8;
  bool normalised = false;      ///< false: 0..255, the device normalises; true: the feeder did
  std::int32_t classes = 1000;  ///< labels lie in [0, classes)

  constexpr std::size_t row_bytes() const noexcept { return image.elements() * size_of(pixel); }
  constexpr std::size_t pixel_bytes() const noexcept {
    return row_bytes() * static_cast<std::size_t>(images);
  }
  constexpr std::size_t label_bytes() const noexcept {
    return sizeof(std::int32_t) * static_cast<std::size_t>(images);
  }
  constexpr std::size_t bytes() const noexcept { return pixel_bytes() + label_bytes(); }
  bool operator==(const BatchSpec&) const = default;
};

/// A view of one slot of a ring. Valid while its lease lives, and not longer.
struct Batch {
  std::span<std::byte> pixels;     ///< [N,H,W,C] of spec.pixel
  std::span<std::int32_t> labels;  ///< [N]
  std::int32_t valid = 0;          ///< images filled; < N only in the last batch of a finite pass
  std::int32_t slot = 0;           ///< which slot of its ring: key of captured programs
  std::uint64_t sequence = 0;      ///< order of publication in this ring, from 0
  /// When it was ready on the host's side: published by its feeder, wherever it was copied since.
  std::chrono::steady_clock::time_point offered{};
};

}  // namespace penstock
