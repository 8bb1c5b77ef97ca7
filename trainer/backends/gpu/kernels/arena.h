// SPDX-License-Identifier: Apache-2.0
// Kernels over the flat arenas of weights and gradients. Threads process four elements at once if
// all pointers are aligned to 16 bytes (8 for short types), otherwise one.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"
#include "trainer/backends/gpu/kernels/step.h"

namespace penstock::gpu {

constexpr std::int32_t kArenaWidth = 4;

/// True if the elements that begin at `from` may be loaded four at once.
template <class T>
PENSTOCK_HOST_DEVICE bool in_fours(const T* from) {
  return reinterpret_cast<std::uintptr_t>(from) % (sizeof(T) * kArenaWidth) == 0;
}

/// Processes one thread's share of elements [0, count): fours(Column over fours), then one(element)
/// for the rest. If `aligned` is false, the rest is everything.
template <class Fours, class One>
PENSTOCK_DEVICE void for_each_four(bool aligned, std::int64_t count, std::int64_t place,
                                   std::int32_t step, const Fours& fours, const One& one) {
  const std::int64_t whole = aligned ? count / kArenaWidth : 0;
  if (place < whole) fours(Column{0, step, place, whole});
  for (std::int64_t i = whole * kArenaWidth + place; i < count; i += step) one(i);
}

/// Converts one thread's share of elements [0, count).
template <class From, class To, class Change>
PENSTOCK_DEVICE void convert(const From* from, To* to, std::int64_t count, std::int64_t place,
                             std::int32_t step, const Change& change) {
  for_each_four(
      in_fours(from) && in_fours(to), count, place, step,
      [&](const Column& column) {
        walk<4>(
            column, [&](std::int64_t i) { return load<kArenaWidth>(from + i * kArenaWidth); },
            [&](std::int64_t i, const Packed<From, kArenaWidth>& packed) {
              Lanes<kArenaWidth> lanes = unpack<From, kArenaWidth>(packed);
              PENSTOCK_UNROLL
              for (int k = 0; k < kArenaWidth; ++k) lanes.of[k] = change(lanes.of[k]);
              store_lanes(to + i * kArenaWidth, lanes);
            });
      },
      [&](std::int64_t i) { to[i] = from_float<To>(change(to_float(from[i]))); });
}

/// Of NarrowWeights and WidenSums.
template <class From, class To>
struct ConvertBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block, class Call>
  static PENSTOCK_DEVICE void run(Block& block, const Call& call) {
    block.for_each_thread([&](std::int32_t thread) {
      convert(static_cast<const From*>(call.from), static_cast<To*>(call.to),
              static_cast<std::int64_t>(call.count),
              std::int64_t{block.row_block()} * block.threads() + thread,
              block.row_blocks() * block.threads(), [](float value) { return value; });
    });
  }
};
/// A thread converts four times four elements.
inline Geometry convert_geometry(std::size_t count) {
  return linear_geometry(static_cast<std::int64_t>(count / kArenaWidth / 4));
}
template <class Launch>
void select(const NarrowWeights& call, const Launch& launch) {
  with_type(call.type, [&]<class T>(T) {
    launch(Selected<ConvertBody<float, T>>{}, convert_geometry(call.count), call);
  });
}
template <class Launch>
void select(const WidenSums& call, const Launch& launch) {
  with_type(call.type, [&]<class T>(T) {
    launch(Selected<ConvertBody<T, float>>{}, convert_geometry(call.count), call);
  });
}

template <class T>
struct WidenGradientsBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const WidenGradients& call) {
    if (block.row_block() >= call.chunk_count) return;
    const ArenaChunk chunk = call.chunks[block.row_block()];
    const float loss_scale = call.scalars->loss_scale;
    float* const wide = call.wide + chunk.first;
    if (chunk.flag) {
      const T* const narrow = static_cast<const T*>(call.narrow) + chunk.first;
      widen(block, narrow, wide, chunk.count, loss_scale);
    } else if (loss_scale != 1) {
      widen(block, static_cast<const float*>(wide), wide, chunk.count, loss_scale);
    }
  }

 private:
  template <class Block, class From>
  static PENSTOCK_DEVICE void widen(Block& block, const From* from, float* to, std::uint32_t count,
                                    float loss_scale) {
    block.for_each_thread([&](std::int32_t thread) {
      convert(from, to, count, thread, block.threads(),
              [&](float value) { return value / loss_scale; });
    });
  }
};
/// One block per chunk. If there are no chunks: one block without work.
constexpr Geometry chunk_geometry(std::int32_t chunk_count) {
  return {larger(1, chunk_count), 1, kBlockThreads};
}
template <class Launch>
void select(const WidenGradients& call, const Launch& launch) {
  select_typed<WidenGradientsBody>(call, chunk_geometry(call.chunk_count), launch);
}

struct CheckFiniteBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const CheckFinite& call) {
    const auto count = static_cast<std::int64_t>(call.count);
    const std::int64_t share =
        divide_up<std::int64_t>(count, kFiniteBlocks * kArenaWidth) * kArenaWidth;
    const std::int64_t first = smaller(block.row_block() * share, count);
    const std::int64_t last = smaller(first + share, count);
    const float* const values = call.values + first;
    typename Block::template PerThread<std::int32_t> bad(block);
    block.for_each_thread([&](std::int32_t thread) {
      std::int32_t found = 0;
      for_each_four(
          in_fours(values), last - first, thread, block.threads(),
          [&](const Column& column) {
            walk<8>(
                column, [&](std::int64_t i) { return load<kArenaWidth>(values + i * kArenaWidth); },
                [&](std::int64_t, const Packed<float, kArenaWidth>& packed) {
                  const Lanes<kArenaWidth> lanes = unpack<float, kArenaWidth>(packed);
                  PENSTOCK_UNROLL
                  for (int k = 0; k < kArenaWidth; ++k) found += is_finite(lanes.of[k]) ? 0 : 1;
                });
          },
          [&](std::int64_t i) { found += is_finite(values[i]) ? 0 : 1; });
      bad[thread] = found;
    });
    const std::int32_t sum = block.sum(bad);
    block.for_each_thread([&](std::int32_t thread) {
      if (thread == 0) call.partial[block.row_block()] = sum == 0 ? 1 : 0;
    });
  }
};
template <class Launch>
void select(const CheckFinite& call, const Launch& launch) {
  launch(Selected<CheckFiniteBody>{}, Geometry{kFiniteBlocks, 1, kBlockThreads}, call);
}

template <class T>
struct SumSlicesBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const SumSlices& call) {
    block.for_each_thread([&](std::int32_t thread) {
      bool aligned = true;
      for (std::int32_t r = 0; r < call.ranks; ++r) {
        aligned = aligned && in_fours(elements(call, r, call.first));
      }
      for_each_four(
          aligned, static_cast<std::int64_t>(call.count),
          std::int64_t{block.row_block()} * block.threads() + thread,
          block.row_blocks() * block.threads(),
          [&](const Column& column) {
            for (std::int64_t i = column.first; i < column.last; i += column.step) {
              add<kArenaWidth>(call, i * kArenaWidth);
            }
          },
          [&](std::int64_t i) { add<1>(call, i); });
    });
  }

 private:
  static PENSTOCK_DEVICE T* elements(const SumSlices& call, std::int32_t rank, std::size_t first) {
    return static_cast<T*>(call.tensors[rank]) + first;
  }
  template <int Width>
  static PENSTOCK_DEVICE void add(const SumSlices& call, std::int64_t i) {
    const std::size_t at = call.first + static_cast<std::size_t>(i);
    const auto load_from = [&](std::int32_t rank) {
      return load_lanes<Width>(static_cast<const T*>(elements(call, rank, at)));
    };
    Lanes<Width> sums = load_from(0);
    PENSTOCK_UNROLL_BY(4)
    for (std::int32_t r = 1; r < call.ranks; ++r) {
      const Lanes<Width> more = load_from(r);
      PENSTOCK_UNROLL
      for (int k = 0; k < Width; ++k) sums.of[k] += more.of[k];
    }
    if (call.root >= 0) return store_lanes(elements(call, call.root, at), sums);
    for (std::int32_t r = 0; r < call.ranks; ++r) store_lanes(elements(call, r, at), sums);
  }
};
template <class Launch>
void select(const SumSlices& call, const Launch& launch) {
  const auto items = static_cast<std::int64_t>(call.count / kArenaWidth);
  select_typed<SumSlicesBody>(call, linear_geometry(items / 2), launch);
}

}  // namespace penstock::gpu
