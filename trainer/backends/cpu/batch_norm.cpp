// SPDX-License-Identifier: Apache-2.0
// Work is divided by blocks of channels; the tiles of a block, one per image, lie apart in memory.
// One thread handles all images of a block: it sums first and then writes, while the block may
// still be in a cache. If there are fewer blocks than threads, images are divided too.
#include "trainer/backends/cpu/batch_norm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "trainer/backends/cpu/builder.h"
#include "trainer/backends/cpu/kernels.h"
#include "trainer/simd.h"

namespace penstock::cpu {
namespace {

constexpr std::size_t kLanes = kChannelBlock;
using Lanes = std::array<float, kLanes>;

/// Sums of one tile, or of several tiles.
struct Sums {
  std::array<double, kLanes> first{}, second{};

  void operator+=(const Sums& other) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      first[lane] += other.first[lane];
      second[lane] += other.second[lane];
    }
  }
};

/// Arguments of a loop over the pixels of one tile. Each loop uses some of the members.
template <typename T>
struct Tile {
  const T *x = nullptr, *other = nullptr;  // other: residual or gradient of y
  T* out = nullptr;
  Lanes a{}, b{}, c{};
  float floor = 0;
  mutable Lanes first{}, second{};
};

// The loops below run over pixels; four at a time if sums would otherwise wait for each other.
constexpr std::size_t kAtOnce = 4;

/// first += x - a, second += (x - a)^2.
template <typename T>
struct MomentsTile : Tile<T> {};
template <typename T>
[[gnu::always_inline]] inline void loop(const MomentsTile<T>& tile, std::size_t,
                                        std::size_t count) {
  std::array<Lanes, kAtOnce> first{}, second{};
  for (std::size_t pixel = 0; pixel < count; pixel += kAtOnce) {
    const std::size_t group = std::min(kAtOnce, count - pixel);
    for (std::size_t k = 0; k < group; ++k) {
      const T* x = tile.x + (pixel + k) * kLanes;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const float d = load(x[lane]) - tile.a[lane];
        first[k][lane] += d;
        second[k][lane] += d * d;
      }
    }
  }
  for (std::size_t k = 0; k < kAtOnce; ++k) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      tile.first[lane] += first[k][lane];
      tile.second[lane] += second[k][lane];
    }
  }
}

/// out = max(a x + b [+ other], floor).
template <bool Residual, typename T>
struct ApplyTile : Tile<T> {};
template <bool Residual, typename T>
[[gnu::always_inline]] inline void loop(const ApplyTile<Residual, T>& tile, std::size_t,
                                        std::size_t count) {
  const Lanes a = tile.a, b = tile.b;
  const float floor = tile.floor;
  for (std::size_t pixel = 0; pixel < count; ++pixel) {
    const T* x = tile.x + pixel * kLanes;
    T* out = tile.out + pixel * kLanes;
#pragma GCC ivdep
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      float y = load(x[lane]) * a[lane] + b[lane];
      if constexpr (Residual) y += load(tile.other[pixel * kLanes + lane]);
      store(out[lane], std::max(y, floor));
    }
  }
}

/// The gradient of y, or 0 if the ReLU cut it: a x + b <= 0.
template <bool Relu, typename T>
[[gnu::always_inline]] inline float passed(float x, const T& gradient, float a, float b) {
  const float value = load(gradient);
  if constexpr (!Relu) return value;
  return x * a + b > 0 ? value : 0.F;
}

/// first += g, second += g (x - c).
template <bool Relu, typename T>
struct GradientSumsTile : Tile<T> {};
template <bool Relu, typename T>
[[gnu::always_inline]] inline void loop(const GradientSumsTile<Relu, T>& tile, std::size_t,
                                        std::size_t count) {
  std::array<Lanes, kAtOnce> first{}, second{};
  const Lanes a = tile.a, b = tile.b, c = tile.c;
  for (std::size_t pixel = 0; pixel < count; pixel += kAtOnce) {
    const std::size_t group = std::min(kAtOnce, count - pixel);
    for (std::size_t k = 0; k < group; ++k) {
      const std::size_t at = (pixel + k) * kLanes;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const float x = load(tile.x[at + lane]);
        const float g = passed<Relu>(x, tile.other[at + lane], a[lane], b[lane]);
        first[k][lane] += g;
        second[k][lane] += g * (x - c[lane]);
      }
    }
  }
  for (std::size_t k = 0; k < kAtOnce; ++k) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      tile.first[lane] += first[k][lane];
      tile.second[lane] += second[k][lane];
    }
  }
}

/// out = a g + first x + second.
template <bool Relu, typename T>
struct GradientTile : Tile<T> {};
template <bool Relu, typename T>
[[gnu::always_inline]] inline void loop(const GradientTile<Relu, T>& tile, std::size_t,
                                        std::size_t count) {
  const Lanes a = tile.a, b = tile.b, by_x = tile.first, constant = tile.second;
  for (std::size_t pixel = 0; pixel < count; ++pixel) {
    const std::size_t at = pixel * kLanes;
#pragma GCC ivdep
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = load(tile.x[at + lane]);
      const float g = passed<Relu>(x, tile.other[at + lane], a[lane], b[lane]);
      store(tile.out[at + lane], a[lane] * g + by_x[lane] * x + constant[lane]);
    }
  }
}

/// Runs `sum(block, image)` over all images of each block, then `write(block, image, sums)`.
template <typename Sum, typename Prepare, typename Write>
void in_two_passes(const BatchNormShape& shape, Sum sum, Prepare prepare, Write write) {
  const auto blocks = static_cast<std::size_t>(shape.channels / kChannelBlock);
  const auto images = static_cast<std::size_t>(shape.images);
  const auto threads = static_cast<std::size_t>(omp_get_max_threads());
  const std::size_t parts = std::min(images, (threads + blocks - 1) / blocks);
  const auto range = [&](std::size_t part) {
    return std::pair(images * part / parts, images * (part + 1) / parts);
  };
  const auto sum_part = [&](std::size_t block, std::size_t part) {
    Sums sums;
    const auto [first, last] = range(part);
    for (std::size_t image = first; image < last; ++image) sums += sum(block, image);
    return sums;
  };
  const auto write_part = [&](std::size_t block, std::size_t part, const auto& prepared) {
    const auto [first, last] = range(part);
    for (std::size_t image = first; image < last; ++image) write(block, image, prepared);
  };
  if (parts == 1) {
    parallel_for(blocks, [&](std::size_t block) {
      write_part(block, 0, prepare(block, sum_part(block, 0)));
    });
    return;
  }
  std::vector<Sums> partial(blocks * parts);
  parallel_for(partial.size(),
               [&](std::size_t task) { partial[task] = sum_part(task / parts, task % parts); });
  parallel_for(partial.size(), [&](std::size_t task) {
    const std::size_t block = task / parts;
    Sums sums;
    for (std::size_t part = 0; part < parts; ++part) sums += partial[block * parts + part];
    write_part(block, task % parts, prepare(block, sums));
  });
}

/// The offset of a block of channels of one image in x.
std::size_t tile_at(const BatchNormShape& shape, std::size_t block, std::size_t image) {
  const auto blocks = static_cast<std::size_t>(shape.channels / kChannelBlock);
  return (image * blocks + block) * shape.pixels * kLanes;
}

template <typename Kind>
Sums sums_of(Kind tile, std::size_t pixels) {
  best_loop<Kind>()(&tile, 0, pixels);
  Sums sums;
  std::copy(tile.first.begin(), tile.first.end(), sums.first.begin());
  std::copy(tile.second.begin(), tile.second.end(), sums.second.begin());
  return sums;
}

/// a and b of a x + b = scale * (x - mean) / sqrt(variance + epsilon) + shift.
struct Affine {
  Lanes a{}, b{};
};
Affine affine_of(const BatchNormWeights& weights, std::size_t block, const float* mean,
                 const float* variance) {
  Affine affine;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::size_t c = block * kLanes + lane;
    affine.a[lane] = weights.scale[c] / std::sqrt(variance[c] + weights.epsilon);
    affine.b[lane] = weights.shift[c] - mean[c] * affine.a[lane];
  }
  return affine;
}

template <typename T, bool Residual>
void forward(const BatchNormShape& shape, const BatchNormWeights& weights, bool relu, const T* x,
             const T* residual, float* mean, float* variance, T* y) {
  const double count = static_cast<double>(shape.pixels) * shape.images;
  const auto about = [&](std::size_t block) {
    Lanes lanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = load(x[tile_at(shape, block, 0) + lane]);
    }
    return lanes;
  };
  in_two_passes(
      shape,
      [&](std::size_t block, std::size_t image) {
        MomentsTile<T> tile;
        tile.x = x + tile_at(shape, block, image);
        tile.a = about(block);
        return sums_of(tile, shape.pixels);
      },
      [&](std::size_t block, const Sums& sums) {
        const Lanes offset = about(block);
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          const std::size_t c = block * kLanes + lane;
          const double shifted = sums.first[lane] / count;
          mean[c] = static_cast<float>(shifted + offset[lane]);
          variance[c] =
              static_cast<float>(std::max(0., sums.second[lane] / count - shifted * shifted));
        }
        return affine_of(weights, block, mean, variance);
      },
      [&](std::size_t block, std::size_t image, const Affine& affine) {
        const std::size_t at = tile_at(shape, block, image);
        ApplyTile<Residual, T> tile;
        tile.x = x + at;
        tile.other = Residual ? residual + at : nullptr;
        tile.out = y + at;
        tile.a = affine.a;
        tile.b = affine.b;
        tile.floor = relu ? 0.F : -std::numeric_limits<float>::infinity();
        best_loop<ApplyTile<Residual, T>>()(&tile, 0, shape.pixels);
      });
}

template <typename T, bool Relu>
void backward(const BatchNormShape& shape, const BatchNormWeights& weights, const T* x,
              const T* gradient_y, const float* mean, const float* variance, T* gradient_x,
              float* gradient_scale, float* gradient_shift) {
  const double count = static_cast<double>(shape.pixels) * shape.images;
  in_two_passes(
      shape,
      [&](std::size_t block, std::size_t image) {
        const Affine affine = affine_of(weights, block, mean, variance);
        GradientSumsTile<Relu, T> tile;
        tile.x = x + tile_at(shape, block, image);
        tile.other = gradient_y + tile_at(shape, block, image);
        tile.a = affine.a;
        tile.b = affine.b;
        std::copy_n(mean + block * kLanes, kLanes, tile.c.begin());
        return sums_of(tile, shape.pixels);
      },
      [&](std::size_t block, const Sums& sums) {
        const Affine affine = affine_of(weights, block, mean, variance);
        GradientTile<Relu, T> tile;
        tile.a = affine.a;
        tile.b = affine.b;
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          const std::size_t c = block * kLanes + lane;
          const double inverse = 1 / std::sqrt(double{variance[c]} + weights.epsilon);
          gradient_shift[c] = static_cast<float>(sums.first[lane]);
          gradient_scale[c] = static_cast<float>(sums.second[lane] * inverse);
          // With d = x - mean: a (g - mean of g - d inverse^2 mean of (g d)).
          const double by_x = -affine.a[lane] * inverse * inverse * sums.second[lane] / count;
          tile.first[lane] = static_cast<float>(by_x);
          tile.second[lane] =
              static_cast<float>(-affine.a[lane] * sums.first[lane] / count - by_x * mean[c]);
        }
        return tile;
      },
      [&](std::size_t block, std::size_t image, GradientTile<Relu, T> tile) {
        const std::size_t at = tile_at(shape, block, image);
        tile.x = x + at;
        tile.other = gradient_y + at;
        tile.out = gradient_x + at;
        best_loop<GradientTile<Relu, T>>()(&tile, 0, shape.pixels);
      });
}

}  // namespace

void batch_norm_forward(DType dtype, const BatchNormShape& shape, const BatchNormWeights& weights,
                        bool relu, const void* x, const void* residual, float* mean,
                        float* variance, void* y) {
  with_type(dtype, [&]<typename T>(T) {
    const auto run = residual == nullptr ? &forward<T, false> : &forward<T, true>;
    run(shape, weights, relu, static_cast<const T*>(x), static_cast<const T*>(residual), mean,
        variance, static_cast<T*>(y));
  });
}

void batch_norm_backward(DType dtype, const BatchNormShape& shape, const BatchNormWeights& weights,
                         bool relu, const void* x, const void* gradient_y, const float* mean,
                         const float* variance, void* gradient_x, float* gradient_scale,
                         float* gradient_shift) {
  with_type(dtype, [&]<typename T>(T) {
    const auto run = relu ? &backward<T, true> : &backward<T, false>;
    run(shape, weights, static_cast<const T*>(x), static_cast<const T*>(gradient_y), mean, variance,
        static_cast<T*>(gradient_x), gradient_scale, gradient_shift);
  });
}
}  // namespace penstock::cpu
