// SPDX-License-Identifier: Apache-2.0
// Kernels that oneDNN lacks, or for which it needs two passes over memory: element-wise operations
// on flat arrays, the loss, and the conversion of pixels. Elements are f32 or bf16; sums are f32.
// Each kernel runs on the calling thread's team of OpenMP threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "dataflow/batch.h"
#include "trainer/backend.h"
#include "trainer/dropout.h"

namespace penstock::cpu {

/// During its lifetime, oneDNN and these kernels use `threads` threads if called from this thread.
class Team {
 public:
  explicit Team(std::int32_t threads);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

 private:
  const int before_;
};

/// Runs body(first, count) on the team, over ranges that cover [0, elements). Ranges begin at
/// multiples of 64 elements.
void parallel_ranges(std::size_t elements,
                     const std::function<void(std::size_t first, std::size_t count)>& body);
/// Runs body(i) on the team, for i in [0, count).
void parallel_for(std::size_t count, const std::function<void(std::size_t)>& body);

/// to[i] = a[i] + b[i], at least 0 if `relu`. `to` may be `a` or `b`.
void add(DType dtype, const void* a, const void* b, bool relu, void* to, std::size_t count);

/// to[i] = sum over `terms` of term[i], where mask is null or mask[i] > 0; else 0. At most four
/// terms; `to` may be one of them.
void masked_sum(DType dtype, std::span<const void* const> terms, const void* mask, void* to,
                std::size_t count);

/// to[i] = max(from[i], 0).
void relu(DType dtype, const void* from, void* to, std::size_t count);

/// Zeroes the elements that the mask drops, in the order N, C, H, W, and scales the others.
void dropout(DType dtype, const DropoutMask& mask, float rate, const void* from, void* to,
             std::size_t count);

/// Converts pixels as spec describes them (u8, f16, bf16 or f32) to normalised elements
/// (dataflow/images/normalisation.h) in the order N,H,W,C, or N,C,H,W if `planar`. If a feeder has
/// normalised the pixels, only type and order change. Rows from `valid` on become zeros.
void normalise(DType dtype, const std::byte* pixels, const BatchSpec& spec, std::int32_t valid,
               bool planar, void* to);

/// Copies [pixels][from_channels] into channels [first, first + from_channels) of
/// [pixels][to_channels]. The other channels become zero.
void pad_channels(DType dtype, const void* from, std::int32_t from_channels, std::int32_t first,
                  void* to, std::int32_t to_channels, std::size_t pixels);
/// The reverse of pad_channels.
void cut_channels(DType dtype, const void* from, std::int32_t from_channels, std::int32_t first,
                  void* to, std::int32_t to_channels, std::size_t pixels);

/// The pixels of images [height][width] that a stride visits, beginning with the first.
struct StridedPixels {
  std::int32_t images = 0, height = 0, width = 0, taken_height = 0, taken_width = 0, stride = 1;
  std::size_t bytes = 0;  ///< of a pixel
};
/// Copies the visited pixels of `whole` into `part`.
void take_pixels(const StridedPixels& pixels, const void* whole, void* part);
/// The reverse: the other pixels of `whole` become zero.
void spread_pixels(const StridedPixels& pixels, const void* part, void* whole);

/// running = (1 - momentum) * running + momentum * batch. The variance of `n` elements is made
/// unbiased by the factor n / (n - 1).
void update_running(const float* mean, const float* variance, float momentum, std::int64_t n,
                    float* running_mean, float* running_variance, std::int32_t channels);

/// Computes over the valid images, from f32 logits [N, classes]: the mean softmax cross-entropy;
/// the counts of images whose label has fewer than one or five logits strictly above it; and, if
/// `gradient` is given, d loss / d logits in `dtype`. Throws DataError if a label is not in
/// [0, classes).
void softmax_loss(const float* logits, const Batch& batch, std::int32_t classes, DType dtype,
                  void* gradient, StepResult& result);

}  // namespace penstock::cpu
