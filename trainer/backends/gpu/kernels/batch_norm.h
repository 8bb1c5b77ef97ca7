// SPDX-License-Identifier: Apache-2.0
// Batch norm, forward and backward: the sums over rows, the values that follow from them, the
// running statistics, and the gradient of x. Sums are f32 in a thread and in a block, and f64 over
// blocks.
#pragma once

#include <cmath>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

template <class T, int Width>
struct BatchNormSumsBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 3;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormSums& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kSumTile);
    auto& shared = block.template shared<ColumnSumsShared<2, Width>>();
    block.for_each_thread([&](std::int32_t thread) {
      const Column column = column_of<Width>(block, tiling, thread, call.rows, call.channels);
      const T* const x = static_cast<const T*>(call.x) + column.channel;
      Lanes<Width> sums[2] = {};
      if (column.first < column.last) {
        const Lanes<Width> pivot = load_lanes<Width>(x);
        walk<at_once<T>(8)>(
            column, [&](std::int64_t row) { return load<Width>(x + row * call.channels); },
            [&](std::int64_t, const Packed<T, Width>& packed) {
              const Lanes<Width> lanes = unpack<T, Width>(packed);
              PENSTOCK_UNROLL
              for (int k = 0; k < Width; ++k) {
                const float d = lanes.of[k] - pivot.of[k];
                sums[0].of[k] += d;
                sums[1].of[k] += d * d;
              }
            });
      }
      keep_sums(shared, thread, sums);
    });
    block.for_each_thread([&](std::int32_t thread) {
      write_sums(block, tiling, thread, shared, call.channels, call.partial);
    });
  }
};
template <class Launch>
void select(const BatchNormSums& call, const Launch& launch) {
  select_wide<BatchNormSumsBody>(call, width_of(call.channels),
                                 sum_geometry(call.rows, call.channels), launch);
}

template <class T>
struct BatchNormFinishBody {
  static constexpr std::int32_t kThreads = kFinishThreads, kPerMultiprocessor = 1;

  static PENSTOCK_DEVICE void write(const BatchNormFinish& call, std::int32_t channel,
                                    const double (&sums)[2]) {
    const auto rows = static_cast<double>(call.rows);
    const T* const first_row = static_cast<const T*>(call.pivot);
    const double pivot = first_row == nullptr ? 0 : double{to_float(first_row[channel])};
    const double shifted = sums[0] / rows, mean = pivot + shifted;
    const double variance = larger(0., sums[1] / rows - shifted * shifted);
    const double inverse = 1 / sqrt(variance + double{call.epsilon});
    const double multiplier = double{call.scale[channel]} * inverse;
    const auto addend = static_cast<float>(double{call.shift[channel]} - mean * multiplier);
    call.mean[channel] = static_cast<float>(mean);
    call.inverse_deviation[channel] = static_cast<float>(inverse);
    call.multiplier[channel] = static_cast<float>(multiplier);
    call.addend[channel] = addend;
    if (call.running_mean != nullptr) {
      const double keep = 1 - double{call.momentum}, take = double{call.momentum};
      const double unbiased = variance * rows / larger(1., rows - 1);
      float &old_mean = call.running_mean[channel], &old = call.running_variance[channel];
      old_mean = static_cast<float>(keep * double{old_mean} + take * mean);
      old = static_cast<float>(keep * double{old} + take * unbiased);
    }
    if (call.short_multiplier != nullptr) {
      static_cast<T*>(call.short_multiplier)[channel] =
          from_float<T>(static_cast<float>(multiplier));
      static_cast<T*>(call.short_addend)[channel] = from_float<T>(addend);
    }
  }
  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormFinish& call) {
    finish_columns<2>(
        block, call.partial, call.blocks, call.channels,
        [&](std::int32_t channel, const double(&sums)[2]) { write(call, channel, sums); });
  }
};
template <class Launch>
void select(const BatchNormFinish& call, const Launch& launch) {
  select_typed<BatchNormFinishBody>(call, finish_geometry(call.channels), launch);
}

struct BatchNormFromRunningBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 1;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormFromRunning& call) {
    block.for_each_thread([&](std::int32_t thread) {
      const std::int32_t channel = block.row_block() * block.threads() + thread;
      if (channel >= call.channels) return;
      const double multiplier = double{call.scale[channel]} /
                                sqrt(double{call.running_variance[channel]} + double{call.epsilon});
      call.multiplier[channel] = static_cast<float>(multiplier);
      call.addend[channel] = static_cast<float>(double{call.shift[channel]} -
                                                double{call.running_mean[channel]} * multiplier);
    });
  }
};
template <class Launch>
void select(const BatchNormFromRunning& call, const Launch& launch) {
  launch(Selected<BatchNormFromRunningBody>{},
         Geometry{divide_up(call.channels, kBlockThreads), 1, kBlockThreads}, call);
}

// ---- backward ---------------------------------------------------------------

/// dy if the mask's bit is set, else 0.
template <class T, int Width>
PENSTOCK_DEVICE Lanes<Width> passed(const Packed<T, Width>& dy, std::uint32_t bits) {
  Lanes<Width> lanes = unpack<T, Width>(dy);
  PENSTOCK_UNROLL
  for (int k = 0; k < Width; ++k) lanes.of[k] = (bits >> k & 1U) != 0 ? lanes.of[k] : 0.F;
  return lanes;
}

template <class T, int Width, bool HasMask, bool Writes>
struct BatchNormBackwardSumsBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 3;
  struct Item {
    Packed<T, Width> dy, x;
    std::uint32_t bits;
  };

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormBackwardSums& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kSumTile);
    auto& shared = block.template shared<ColumnSumsShared<2, Width>>();
    block.for_each_thread([&](std::int32_t thread) {
      Lanes<Width> sums[2] = {};
      const Column column = column_of<Width>(block, tiling, thread, call.rows, call.channels);
      if (column.first < column.last) sum(call, column, sums);
      keep_sums(shared, thread, sums);
    });
    block.for_each_thread([&](std::int32_t thread) {
      write_sums(block, tiling, thread, shared, call.channels, call.partial);
    });
  }

 private:
  static PENSTOCK_DEVICE void sum(const BatchNormBackwardSums& call, const Column& column,
                                  Lanes<Width> (&sums)[2]) {
    const auto* const dy = static_cast<const T*>(call.dy);
    const auto* const x = static_cast<const T*>(call.x);
    const Lanes<Width> mean = load_lanes<Width>(call.mean + column.channel);
    walk<at_once<T>(4)>(
        column,
        [&](std::int64_t row) {
          const std::int64_t at = row * call.channels + column.channel;
          return Item{load<Width>(dy + at), load<Width>(x + at),
                      HasMask ? mask_bits<Width>(call.mask, at) : 0xffU};
        },
        [&](std::int64_t row, const Item& item) {
          const Lanes<Width> g = passed<T, Width>(item.dy, item.bits);
          const Lanes<Width> value = unpack<T, Width>(item.x);
          PENSTOCK_UNROLL
          for (int k = 0; k < Width; ++k) {
            sums[0].of[k] += g.of[k];
            sums[1].of[k] += g.of[k] * (value.of[k] - mean.of[k]);
          }
          if constexpr (Writes) {
            store_lanes(static_cast<T*>(call.masked) + row * call.channels + column.channel, g);
          }
        });
    const Lanes<Width> inverse = load_lanes<Width>(call.inverse_deviation + column.channel);
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) sums[1].of[k] *= inverse.of[k];
  }
};
template <class Launch>
void select(const BatchNormBackwardSums& call, const Launch& launch) {
  select_flags<BatchNormBackwardSumsBody>(call, width_of(call.channels),
                                          sum_geometry(call.rows, call.channels), launch,
                                          call.mask != nullptr, call.masked != nullptr);
}

struct BatchNormBackwardFinishBody {
  static constexpr std::int32_t kThreads = kFinishThreads, kPerMultiprocessor = 1;

  /// With h = the normalised x: dx = a (g - mean of g - h * mean of (g h)), a = scale * inverse.
  static PENSTOCK_DEVICE void write(const BatchNormBackwardFinish& call, std::int32_t channel,
                                    const double (&sums)[2]) {
    const auto rows = static_cast<double>(call.rows);
    const double inverse = double{call.inverse_deviation[channel]};
    const double dy_factor = double{call.scale[channel]} * inverse;
    const double x_factor = -dy_factor * inverse * sums[1] / rows;
    call.dshift[channel] = static_cast<float>(sums[0]);
    call.dscale[channel] = static_cast<float>(sums[1]);
    call.dy_factor[channel] = static_cast<float>(dy_factor);
    call.x_factor[channel] = static_cast<float>(x_factor);
    call.constant[channel] =
        static_cast<float>(-dy_factor * sums[0] / rows - x_factor * double{call.mean[channel]});
  }
  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormBackwardFinish& call) {
    finish_columns<2>(
        block, call.partial, call.blocks, call.channels,
        [&](std::int32_t channel, const double(&sums)[2]) { write(call, channel, sums); });
  }
};
template <class Launch>
void select(const BatchNormBackwardFinish& call, const Launch& launch) {
  launch(Selected<BatchNormBackwardFinishBody>{}, finish_geometry(call.channels), call);
}

template <class T, int Width, bool HasMask, bool Accumulate, bool Two>
struct BatchNormBackwardApplyBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = Two ? 2 : 3;
  struct Factors {
    Lanes<Width> dy, x, constant;
  };
  struct Input {
    Packed<T, Width> x, dx;
  };
  struct Item {
    Packed<T, Width> dy;
    Input of[Two ? 2 : 1];
    std::uint32_t bits;
  };

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormBackwardApply& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kApplyTile);
    block.for_each_thread([&](std::int32_t thread) {
      const Column column = column_of<Width>(block, tiling, thread, call.rows, call.channels);
      if (column.first < column.last) apply(call, column);
    });
  }

 private:
  static PENSTOCK_DEVICE Factors factors_of(const float* dy, const float* x, const float* constant,
                                            std::int32_t channel) {
    return {load_lanes<Width>(dy + channel), load_lanes<Width>(x + channel),
            load_lanes<Width>(constant + channel)};
  }
  static PENSTOCK_DEVICE Input get(const void* x, const void* dx, std::int64_t at) {
    Input input;
    input.x = load<Width>(static_cast<const T*>(x) + at);
    if constexpr (Accumulate) input.dx = load<Width>(static_cast<const T*>(dx) + at);
    return input;
  }
  static PENSTOCK_DEVICE void put(const Factors& factors, const Lanes<Width>& g, const Input& input,
                                  void* to, std::int64_t at) {
    const Lanes<Width> x = unpack<T, Width>(input.x);
    Lanes<Width> dx = {};
    if constexpr (Accumulate) dx = unpack<T, Width>(input.dx);
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) {
      dx.of[k] += factors.dy.of[k] * g.of[k] + (factors.x.of[k] * x.of[k] + factors.constant.of[k]);
    }
    store_lanes(static_cast<T*>(to) + at, dx);
  }
  static PENSTOCK_DEVICE void apply(const BatchNormBackwardApply& call, const Column& column) {
    const Factors first = factors_of(call.dy_factor, call.x_factor, call.constant, column.channel);
    Factors second = {};
    if constexpr (Two) {
      second = factors_of(call.dy_factor2, call.x_factor2, call.constant2, column.channel);
    }
    walk<at_once<T>(Accumulate ? 2 : 4)>(
        column,
        [&](std::int64_t row) {
          const std::int64_t at = row * call.channels + column.channel;
          Item item;
          item.dy = load<Width>(static_cast<const T*>(call.dy) + at);
          item.of[0] = get(call.x, call.dx, at);
          if constexpr (Two) item.of[1] = get(call.x2, call.dx2, at);
          item.bits = HasMask ? mask_bits<Width>(call.mask, at) : 0xffU;
          return item;
        },
        [&](std::int64_t row, const Item& item) {
          const std::int64_t at = row * call.channels + column.channel;
          const Lanes<Width> g = passed<T, Width>(item.dy, item.bits);
          put(first, g, item.of[0], call.dx, at);
          if constexpr (Two) put(second, g, item.of[1], call.dx2, at);
        });
  }
};
template <class Launch>
void select(const BatchNormBackwardApply& call, const Launch& launch) {
  const std::int32_t width = width_of(call.channels);
  select_flags<BatchNormBackwardApplyBody>(
      call, width, apply_geometry(call.rows, call.channels / width), launch, call.mask != nullptr,
      call.accumulate, call.x2 != nullptr);
}

}  // namespace penstock::gpu
