// SPDX-License-Identifier: Apache-2.0
// Local response normalisation. A thread computes one element, or eight channels. With eight it
// also loads the eight channels on each side, which hold all neighbours in reach.
#pragma once

#include <cmath>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

/// The farthest neighbour in the bodies for eight channels: the backward pass looks at neighbours
/// of neighbours.
constexpr std::int32_t kLrnReach = 4;

/// base^-exponent for base > 0.
PENSTOCK_DEVICE float inverse_power(float base, float exponent) {
  return exp2f(-exponent * log2f(base));
}

/// Loads 24 channels: eight and the eight on each side; zeros beyond both ends.
template <class T>
PENSTOCK_DEVICE void load_around(const void* row, std::int32_t channel, std::int32_t channels,
                                 float (&around)[3 * kWide]) {
  PENSTOCK_UNROLL
  for (int part = 0; part < 3; ++part) {
    const std::int32_t first = channel + (part - 1) * kWide;
    Lanes<kWide> lanes = {};
    if (first >= 0 && first < channels) {
      lanes = load_lanes<kWide>(static_cast<const T*>(row) + first);
    }
    PENSTOCK_UNROLL
    for (int k = 0; k < kWide; ++k) around[part * kWide + k] = lanes.of[k];
  }
}
/// The sum over places within `half` of `centre`; half <= kLrnReach.
template <int Size>
PENSTOCK_DEVICE float sum_around(const float (&values)[Size], int centre, std::int32_t half) {
  float sum = 0;
  PENSTOCK_UNROLL
  for (int d = -kLrnReach; d <= kLrnReach; ++d) {
    const bool in_reach = d <= half && -d <= half;
    sum += in_reach ? values[centre + d] : 0.F;
  }
  return sum;
}
/// The sum of term(j) over channels j within half a size of `channel`.
template <class Term>
PENSTOCK_DEVICE float sum_neighbours(const Lrn& lrn, std::int32_t channel, std::int32_t channels,
                                     const Term& term) {
  const std::int32_t half = lrn.size / 2;
  float sum = 0;
  for (std::int32_t j = larger(0, channel - half); j <= smaller(channels - 1, channel + half);
       ++j) {
    sum += term(j);
  }
  return sum;
}
/// k + alpha / size * the sum of squares around a channel of a row.
template <class T>
PENSTOCK_DEVICE float lrn_base(const Lrn& lrn, const T* row, std::int32_t channel,
                               std::int32_t channels) {
  const float squares = sum_neighbours(
      lrn, channel, channels, [&](std::int32_t j) { return to_float(row[j]) * to_float(row[j]); });
  return lrn.k + lrn.alpha / static_cast<float>(lrn.size) * squares;
}

template <class T, int Width>
struct LrnForwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 2;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const LrnForward& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kApplyTile);
    block.for_each_thread([&](std::int32_t thread) {
      const Column column = column_of<Width>(block, tiling, thread, call.rows, call.channels);
      for (std::int64_t row = column.first; row < column.last; row += column.step) {
        store_lanes(static_cast<T*>(call.y) + row * call.channels + column.channel,
                    normalised(call, row, column.channel));
      }
    });
  }

 private:
  static PENSTOCK_DEVICE Lanes<Width> normalised(const LrnForward& call, std::int64_t row,
                                                 std::int32_t channel) {
    const T* const x = static_cast<const T*>(call.x) + row * call.channels;
    const Lrn& lrn = call.lrn;
    Lanes<Width> y;
    if constexpr (Width == 1) {
      y.of[0] =
          to_float(x[channel]) * inverse_power(lrn_base(lrn, x, channel, call.channels), lrn.beta);
    } else {
      float around[3 * kWide], squares[3 * kWide];
      load_around<T>(x, channel, call.channels, around);
      PENSTOCK_UNROLL
      for (int j = 0; j < 3 * kWide; ++j) squares[j] = around[j] * around[j];
      const float slope = lrn.alpha / static_cast<float>(lrn.size);
      PENSTOCK_UNROLL
      for (int k = 0; k < kWide; ++k) {
        const float base = lrn.k + slope * sum_around(squares, kWide + k, lrn.size / 2);
        y.of[k] = around[kWide + k] * inverse_power(base, lrn.beta);
      }
    }
    return y;
  }
};
template <class Launch>
void select(const LrnForward& call, const Launch& launch) {
  const std::int32_t width = call.lrn.size / 2 <= kLrnReach ? width_of(call.channels) : 1;
  select_wide<LrnForwardBody>(call, width, apply_geometry(call.rows, call.channels / width),
                              launch);
}

/// With b = the base of each channel: dx = dy / b^beta - 2 alpha / size beta x * the sum over
/// neighbours of dy x / b^(beta + 1).
template <class T, int Width>
struct LrnBackwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 2;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const LrnBackward& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kApplyTile);
    block.for_each_thread([&](std::int32_t thread) {
      const Column column = column_of<Width>(block, tiling, thread, call.rows, call.channels);
      for (std::int64_t row = column.first; row < column.last; row += column.step) {
        T* const to = static_cast<T*>(call.dx) + row * call.channels + column.channel;
        Lanes<Width> dx;
        if constexpr (Width == 1) {
          dx.of[0] = gradient(call, row, column.channel);
        } else {
          dx = gradients(call, row, column.channel);
        }
        store_or_add(to, dx, call.accumulate);
      }
    });
  }

 private:
  static PENSTOCK_DEVICE float slope_of(const Lrn& lrn) {
    return 2 * lrn.alpha / static_cast<float>(lrn.size) * lrn.beta;
  }
  static PENSTOCK_DEVICE float gradient(const LrnBackward& call, std::int64_t row,
                                        std::int32_t channel) {
    const T* const x = static_cast<const T*>(call.x) + row * call.channels;
    const T* const dy = static_cast<const T*>(call.dy) + row * call.channels;
    const Lrn& lrn = call.lrn;
    const float sum = sum_neighbours(lrn, channel, call.channels, [&](std::int32_t j) {
      const float base = lrn_base(lrn, x, j, call.channels);
      return to_float(dy[j]) * to_float(x[j]) * inverse_power(base, lrn.beta) / base;
    });
    const float base = lrn_base(lrn, x, channel, call.channels);
    return to_float(dy[channel]) * inverse_power(base, lrn.beta) -
           slope_of(lrn) * to_float(x[channel]) * sum;
  }
  static PENSTOCK_DEVICE Lanes<kWide> gradients(const LrnBackward& call, std::int64_t row,
                                                std::int32_t channel) {
    const Lrn& lrn = call.lrn;
    const std::int64_t at = row * call.channels;
    float x[3 * kWide], squares[3 * kWide], dy[3 * kWide], terms[3 * kWide] = {};
    load_around<T>(static_cast<const T*>(call.x) + at, channel, call.channels, x);
    load_around<T>(static_cast<const T*>(call.dy) + at, channel, call.channels, dy);
    PENSTOCK_UNROLL
    for (int j = 0; j < 3 * kWide; ++j) squares[j] = x[j] * x[j];
    Lanes<kWide> dx;
    const float slope = lrn.alpha / static_cast<float>(lrn.size);
    PENSTOCK_UNROLL
    for (int j = kWide - kLrnReach; j < 2 * kWide + kLrnReach; ++j) {
      const float base = lrn.k + slope * sum_around(squares, j, lrn.size / 2);
      const float passed = dy[j] * inverse_power(base, lrn.beta);
      terms[j] = passed * x[j] / base;
      if (j >= kWide && j < 2 * kWide) dx.of[j - kWide] = passed;
    }
    PENSTOCK_UNROLL
    for (int k = 0; k < kWide; ++k) {
      dx.of[k] -= slope_of(lrn) * x[kWide + k] * sum_around(terms, kWide + k, lrn.size / 2);
    }
    return dx;
  }
};
template <class Launch>
void select(const LrnBackward& call, const Launch& launch) {
  const std::int32_t width = call.lrn.size / 2 <= kLrnReach ? width_of(call.channels) : 1;
  select_wide<LrnBackwardBody>(call, width, apply_geometry(call.rows, call.channels / width),
                               launch);
}

}  // namespace penstock::gpu
