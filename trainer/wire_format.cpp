// SPDX-License-Identifier: Apache-2.0
#include "trainer/wire_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "dataflow/error.h"
#include "dataflow/values/float16.h"
#include "trainer/simd.h"

namespace penstock {
namespace {

using cpu::best_loop;
using cpu::Bf16;
using cpu::load;
using cpu::store;

constexpr std::uint32_t kInfinity = values::float16::kInfinity;

/// Small enough that a block's working data stay in a first-level cache, and that each tensor's
/// elements are still there when the sums are written.
constexpr std::size_t kBlock = 2048;

// ---- conversions ------------------------------------------------------------

template <typename W>
struct Narrow {
  const float* values;
  W* wire;
};
template <typename W>
[[gnu::always_inline]] inline void loop(const Narrow<W>& arguments, std::size_t first,
                                        std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = first; i < first + count; ++i) store(arguments.wire[i], arguments.values[i]);
}

template <typename W>
struct Widen {
  const W* wire;
  float* values;
};
template <typename W>
[[gnu::always_inline]] inline void loop(const Widen<W>& arguments, std::size_t first,
                                        std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = first; i < first + count; ++i) arguments.values[i] = load(arguments.wire[i]);
}

template <typename A>
void run(const A& arguments, std::size_t count) {
  best_loop<A>()(&arguments, 0, count);
}

void narrow_block(const float* values, Bf16* wire, std::size_t count) {
  run(Narrow<Bf16>{values, wire}, count);
}
void widen_block(const Bf16* wire, float* values, std::size_t count) {
  run(Widen<Bf16>{wire, values}, count);
}
void narrow_block(const float* values, values::Fp16* wire, std::size_t count) {
  narrow(values, wire, count);
}
void widen_block(const values::Fp16* wire, float* values, std::size_t count) {
  widen(wire, values, count);
}

// ---- blocks -----------------------------------------------------------------

template <typename W>
struct Scratch {
  alignas(64) W wire[kBlock];
  alignas(64) float values[kBlock];
};

/// Values as the format holds them: f32 unchanged, other formats narrowed into the scratch memory.
template <typename W>
const float* rounded(const float* values, Scratch<W>& scratch, std::size_t count) {
  if constexpr (std::is_same_v<W, float>) {
    return values;
  } else {
    narrow_block(values, scratch.wire, count);
    widen_block(scratch.wire, scratch.values, count);
    return scratch.values;
  }
}
template <typename W>
const float* widened(const W* wire, Scratch<W>& scratch, std::size_t count) {
  if constexpr (std::is_same_v<W, float>) {
    return wire;
  } else {
    widen_block(wire, scratch.values, count);
    return scratch.values;
  }
}

struct Add {
  const float* values;
  float* sums;
};
[[gnu::always_inline]] inline void loop(const Add& arguments, std::size_t first,
                                        std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) arguments.sums[i] += arguments.values[i];
}

/// Stores the first of several terms, or adds a further one.
void add_term(bool is_first, const float* values, float* sums, std::size_t count) {
  if (is_first) {
    std::memcpy(sums, values, count * sizeof(float));
  } else {
    run(Add{values, sums}, count);
  }
}

struct CountNotFinite {
  const float* values;
  std::size_t* found;
};
[[gnu::always_inline]] inline void loop(const CountNotFinite& arguments, std::size_t first,
                                        std::size_t count) {
  std::uint32_t found = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(arguments.values[i]);
    found += (bits & kInfinity) == kInfinity ? 1 : 0;
  }
  *arguments.found += found;
}

std::size_t count_not_finite(const float* values, std::size_t count) {
  std::size_t found = 0;
  run(CountNotFinite{values, &found}, count);
  return found;
}

/// Rounds the sums of a block; returns how many are not finite after that. Does nothing for f32.
template <typename W>
std::size_t finish(float* sums, Scratch<W>& scratch, std::size_t count) {
  if constexpr (std::is_same_v<W, float>) {
    return 0;
  } else {
    narrow_block(sums, scratch.wire, count);
    widen_block(scratch.wire, sums, count);
    return count_not_finite(sums, count);
  }
}

/// Calls `body(first, count)` for each block in turn, and adds the return values.
template <typename Body>
std::size_t in_blocks(std::size_t first, std::size_t count, const Body& body) {
  std::size_t sum = 0;
  for (const std::size_t end = first + count; first < end; first += kBlock) {
    sum += body(first, std::min(kBlock, end - first));
  }
  return sum;
}

/// Calls `body` with an element of the format.
template <typename Body>
std::size_t with_format(WireFormat format, const Body& body) {
  if (format == WireFormat::f16) return body(values::Fp16{});
  if (format == WireFormat::bf16) return body(Bf16{});
  return body(float{});
}

}  // namespace

std::string_view to_string(WireFormat format) {
  constexpr std::string_view kNames[] = {"fp32", "fp16", "bf16"};
  return kNames[static_cast<std::size_t>(format)];
}

WireFormat parse_wire_format(std::string_view text, std::string_view flag) {
  for (const WireFormat format : {WireFormat::f32, WireFormat::f16, WireFormat::bf16}) {
    if (to_string(format) == text) return format;
  }
  throw ConfigError("{} is '{}'; expected fp32, fp16 or bf16", flag, text);
}

double unit_roundoff(WireFormat format) {
  constexpr double kRoundoffs[] = {0, 0x1p-11, 0x1p-8};
  return kRoundoffs[static_cast<std::size_t>(format)];
}

void narrow(WireFormat format, std::span<const float> values, std::span<std::byte> wire) {
  PENSTOCK_ASSERT(format != WireFormat::f32 &&
                  wire.size() == values.size() * element_bytes(format));
  with_format(format, [&]<typename W>(W) {
    if constexpr (!std::is_same_v<W, float>) {
      narrow_block(values.data(), reinterpret_cast<W*>(wire.data()), values.size());
    }
    return std::size_t{0};
  });
}

std::size_t widen(WireFormat format, std::span<const std::byte> wire, std::span<float> values) {
  PENSTOCK_ASSERT(format != WireFormat::f32 &&
                  wire.size() == values.size() * element_bytes(format));
  return with_format(format, [&]<typename W>(W) {
    return in_blocks(0, values.size(), [&](std::size_t first, std::size_t count) {
      if constexpr (!std::is_same_v<W, float>) {
        widen_block(reinterpret_cast<const W*>(wire.data()) + first, values.data() + first, count);
      }
      return count_not_finite(values.data() + first, count);
    });
  });
}

std::size_t round_to(WireFormat format, std::span<float> values) {
  PENSTOCK_ASSERT(format != WireFormat::f32);
  return with_format(format, [&]<typename W>(W) {
    Scratch<W> scratch;
    return in_blocks(0, values.size(), [&](std::size_t first, std::size_t count) {
      return finish(values.data() + first, scratch, count);
    });
  });
}

std::size_t add_into_all(WireFormat format, std::span<float* const> tensors, std::size_t begin,
                         std::size_t size) {
  PENSTOCK_ASSERT(!tensors.empty());
  return with_format(format, [&]<typename W>(W) {
    Scratch<W> scratch;
    alignas(64) float sums[kBlock];
    return in_blocks(begin, size, [&](std::size_t first, std::size_t count) {
      for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
        add_term(rank == 0, rounded(tensors[rank] + first, scratch, count), sums, count);
      }
      const std::size_t nonfinite = finish(sums, scratch, count);
      for (float* const tensor : tensors) std::memcpy(tensor + first, sums, count * sizeof(float));
      return nonfinite;
    });
  });
}

std::size_t add_parts(WireFormat format, std::span<const std::byte* const> parts, std::size_t own,
                      float* values, std::byte* sum, std::size_t size) {
  PENSTOCK_ASSERT(own < parts.size());
  return with_format(format, [&]<typename W>(W) {
    Scratch<W> scratch;
    alignas(64) float sums[kBlock];
    return in_blocks(0, size, [&](std::size_t first, std::size_t count) {
      for (std::size_t part = 0; part < parts.size(); ++part) {
        const float* const term =
            part == own ? rounded(values + first, scratch, count)
                        : widened(reinterpret_cast<const W*>(parts[part]) + first, scratch, count);
        add_term(part == 0, term, sums, count);
      }
      const std::size_t nonfinite = finish(sums, scratch, count);
      std::memcpy(values + first, sums, count * sizeof(float));
      if (sum == nullptr) return nonfinite;
      W* const to = reinterpret_cast<W*>(sum) + first;
      if constexpr (std::is_same_v<W, float>) {
        std::memcpy(to, sums, count * sizeof(float));
      } else {
        std::memcpy(to, scratch.wire, count * sizeof(W));
      }
      return nonfinite;
    });
  });
}

}  // namespace penstock
