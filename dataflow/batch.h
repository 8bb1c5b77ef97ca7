// SPDX-License-Identifier: Apache-2.0
// What a batch is: the shape that all threads agree on, and a view of the ring slot that holds it.
// These are plain values; they own nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

enum class DType : std::uint8_t { u8, i32, f16, bf16, f32 };

/// Size of one element in bytes.
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

/// The shape that all threads agree on before any of them starts. It stays constant for the run.
struct BatchSpec {
  std::int32_t images = 64;  ///< N, the samples in one device's batch
  ImageShape image{};        ///< 1x1 with bytes as channels if the batch is opaque
  DType pixel = DType::u8;
  bool normalised = false;  ///< false: 0..255, the device normalises; true: the feeder did
  bool planar = false;      ///< pixels are [N,C,H,W]; false: [N,H,W,C]
  /// Samples are arrays of any kind, one after another; N and the bytes vary up to those stated.
  bool opaque = false;
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

/// A view of one slot of a ring. It is valid only while its lease exists.
struct Batch {
  std::span<std::byte> pixels;     ///< [N,H,W,C] of spec.pixel, or [N,C,H,W] if planar
  std::span<std::int32_t> labels;  ///< [N]
  std::int32_t valid = 0;  ///< samples filled; other than N only in the last batch of a pass, and
                           ///< in opaque batches
  std::size_t bytes = 0;   ///< of `pixels` that are filled; all, unless the batch is opaque
  std::int32_t slot = 0;   ///< the slot's number in its ring; the key of captured programs
  bool begins_epoch = false;   ///< its source ended an epoch just before it
  std::uint64_t sequence = 0;  ///< order of publication in this ring, from 0
  /// When its feeder published it on the host. A later copy does not change this time.
  std::chrono::steady_clock::time_point offered{};
};

}  // namespace penstock
