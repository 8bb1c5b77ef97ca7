// SPDX-License-Identifier: Apache-2.0
// Cases of element-wise kernels, and of sums over columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/support/gpu/kernel_case.h"
#include "tests/support/gpu/plain_images.h"

namespace penstock::gpu {
namespace {

std::size_t bits_for(const MatrixShape& shape) { return (shape.count() + 7) / 8; }

/// Which optional tensors ScaleShift has. `in_place`: y is the residual, or x if there is none.
struct Parts {
  const char* name;
  bool multiplier, addend, residual, residual_multiplier, residual_addend, mask, relu, in_place;
};
constexpr Parts kParts[] = {
    {"ScaleShift", true, true, false, false, false, true, true, false},
    {"ScaleShift_residual", true, true, true, false, false, true, true, false},
    {"ScaleShift_dual", true, true, true, true, true, true, true, false},
    {"ScaleShift_bias", false, true, false, false, false, false, true, true},
    {"ScaleShift_in_place", true, true, false, false, false, true, true, true},
    {"ScaleShift_no_relu", true, true, false, false, false, false, false, false},
    {"ScaleShift_onto_residual", true, true, true, false, false, false, true, true},
    {"ScaleShift_dual_onto_residual", true, true, true, true, true, false, false, true},
    {"ScaleShift_shifted_residual", false, false, true, false, true, true, false, false},
};
constexpr std::size_t kPartsOfSteps = 4;  ///< the others are tried on small tensors only

void scale_shift(KernelCase& k, DType type, const MatrixShape& shape, const Parts& parts) {
  const auto floats = [&](bool needed) { return needed ? k.floats(shape.columns()) : nullptr; };
  const auto tensor = [&](bool written) {
    return written ? k.both(type, shape.count()) : k.input(type, shape.count());
  };
  ScaleShift call{.relu = parts.relu, .type = type, .rows = shape.rows, .channels = shape.channels};
  call.x = tensor(parts.in_place && !parts.residual);
  call.multiplier = floats(parts.multiplier);
  call.addend = floats(parts.addend);
  if (parts.residual) call.residual = tensor(parts.in_place);
  call.residual_multiplier = floats(parts.residual_multiplier);
  call.residual_addend = floats(parts.residual_addend);
  call.y = parts.in_place ? const_cast<void*>(parts.residual ? call.residual : call.x)
                          : k.output(type, shape.count());
  if (parts.mask) call.mask = k.output_bits<std::uint8_t>(bits_for(shape));
  k.call = call;
  k.formula = [=](Results& r) {
    const auto factor = [](const float* of, std::size_t c, double missing) {
      return of == nullptr ? missing : double{of[c]};
    };
    for (std::size_t i = 0; i < shape.count(); ++i) {
      const std::size_t c = i % shape.columns();
      double y = value(call.x, type, i) * factor(call.multiplier, c, 1) + factor(call.addend, c, 0);
      if (parts.residual) {
        y += value(call.residual, type, i) * factor(call.residual_multiplier, c, 1) +
             factor(call.residual_addend, c, 0);
      }
      r.rounded(call.y, type, i, parts.relu ? std::max(y, 0.) : y, 8);
      if (!parts.mask) continue;
      const auto* const mask = reinterpret_cast<const std::uint8_t*>(r.memory_after(call.mask));
      r.expect(call.mask, i, bit_of(mask, i), r.after(call.y, type, i) > 0, 0);
    }
  };
}

/// Masks by the mask's bits, or by the sign of y.
void relu_backward(KernelCase& k, DType type, std::size_t count, bool masks, bool adds,
                   bool in_place) {
  ReluBackward call{.accumulate = adds, .type = type, .count = static_cast<std::int64_t>(count)};
  call.dy = in_place ? k.both(type, count) : k.input(type, count);
  if (masks) call.mask = k.random_bytes((count + 7) / 8);
  if (!masks) call.y = k.whole_numbers(type, count, -1, 2);
  call.dx = in_place ? const_cast<void*>(call.dy)
            : adds   ? k.both(type, count)
                     : k.output(type, count);
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t i = 0; i < count; ++i) {
      const bool passes = masks ? bit_of(call.mask, i) : value(call.y, type, i) > 0;
      const double old = adds ? value(call.dx, type, i) : 0;
      r.rounded(call.dx, type, i, (passes ? value(call.dy, type, i) : 0) + old, 0);
    }
  };
}

void column_sums(KernelCase& k, DType type, const MatrixShape& shape) {
  const auto blocks = static_cast<std::size_t>(sum_blocks(shape.rows, shape.channels));
  const ColumnSums call{.dy = k.input(type, shape.count()),
                        .partial = k.output_floats(blocks * shape.columns()),
                        .type = type,
                        .rows = shape.rows,
                        .channels = shape.channels};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t c = 0; c < shape.columns(); ++c) {
      double sum = 0, size = 0, found = 0;
      for (std::size_t i = c; i < shape.count(); i += shape.columns()) {
        sum += value(call.dy, type, i);
        size += std::abs(value(call.dy, type, i));
      }
      for (std::size_t block = 0; block < blocks; ++block) {
        found += r.after(call.partial, DType::f32, block * shape.columns() + c);
      }
      // Rounded once per row of a thread and per lane of a block: fewer than 64 times, in random
      // directions.
      r.expect(call.partial, c, found, sum, 8 * 0x1p-24 * size);
    }
  };
}

/// Whole numbers are exact in any order, so that a missing number or one counted twice shows.
void column_finish(KernelCase& k, std::int32_t blocks, std::int32_t channels) {
  const auto columns = static_cast<std::size_t>(channels);
  std::vector<float> partial(static_cast<std::size_t>(blocks) * columns);
  for (std::size_t i = 0; i < partial.size(); ++i) partial[i] = static_cast<float>(i % 97);
  const ColumnFinish call{k.constant(partial), blocks, channels, k.output_floats(columns)};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::size_t i = c; i < static_cast<std::size_t>(blocks) * columns; i += columns) {
        sum += double{call.partial[i]};
      }
      r.near(call.sums, c, sum, 0);
    }
  };
}

/// A range of channels in two tensors.
struct Range {
  std::int32_t channels, from_channels, from_first, to_channels, to_first;
};
/// Multiples of eight or not, at both ends.
constexpr Range kRanges[] = {{3, 3, 0, 8, 0},    {8, 24, 8, 40, 16},   {5, 9, 4, 5, 0},
                             {16, 16, 0, 16, 0}, {64, 64, 0, 320, 64}, {7, 16, 8, 24, 17}};

void copy_channels(KernelCase& k, DType type, std::int64_t rows, const Range& range, bool zeroes,
                   bool adds) {
  const auto to_count = static_cast<std::size_t>(rows * range.to_channels);
  const CopyChannels call{
      .from = k.input(type, static_cast<std::size_t>(rows * range.from_channels)),
      .to = k.both(type, to_count),
      .rows = rows,
      .channels = range.channels,
      .from_channels = range.from_channels,
      .from_first = range.from_first,
      .to_channels = range.to_channels,
      .to_first = range.to_first,
      .zero_rest = zeroes,
      .accumulate = adds,
      .type = type};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t i = 0; i < to_count; ++i) {
      const auto row = static_cast<std::int64_t>(i) / range.to_channels;
      const std::int64_t place = static_cast<std::int64_t>(i) % range.to_channels - range.to_first;
      const double old = value(call.to, type, i);
      double expected = zeroes ? 0 : old;
      if (place >= 0 && place < range.channels) {
        const auto from =
            static_cast<std::size_t>(row * range.from_channels + range.from_first + place);
        expected = value(call.from, type, from) + (adds ? old : 0);
      }
      r.rounded(call.to, type, i, expected, 0);
    }
  };
}

/// Neighbours within and beyond the reach of the body for eight channels, and all channels.
constexpr Lrn kLrns[] = {
    {5, 0.5F, 0.75F, 1}, {9, 0.3F, 0.5F, 2}, {11, 0.2F, 0.75F, 1}, {1, 1, 1, 1}};

void lrn_forward(KernelCase& k, DType type, const MatrixShape& shape, const Lrn& lrn) {
  const LrnForward call{k.input(type, shape.count()),
                        k.output(type, shape.count()),
                        lrn,
                        type,
                        shape.rows,
                        shape.channels};
  k.call = call;
  k.formula = [=](Results& r) {
    const plain::Images x = images_of(call.x, type, 1, image_of(shape));
    plain::Images y(1, image_of(shape));
    plain::forward(lrn, x, y);
    for (std::size_t i = 0; i < shape.count(); ++i) r.rounded(call.y, type, i, value_at(y, i), 4);
  };
}

void lrn_backward(KernelCase& k, DType type, const MatrixShape& shape, const Lrn& lrn, bool adds) {
  const LrnBackward call{.x = k.input(type, shape.count()),
                         .dy = k.input(type, shape.count()),
                         .dx = adds ? k.both(type, shape.count()) : k.output(type, shape.count()),
                         .accumulate = adds,
                         .lrn = lrn,
                         .type = type,
                         .rows = shape.rows,
                         .channels = shape.channels};
  k.call = call;
  k.formula = [=](Results& r) {
    plain::Images dx(1, image_of(shape));
    plain::backward(lrn, images_of(call.x, type, 1, image_of(shape)),
                    images_of(call.dy, type, 1, image_of(shape)), &dx);
    for (std::size_t i = 0; i < shape.count(); ++i) {
      // A few terms of up to 27 = x^2 dy.
      r.rounded(call.dx, type, i, value_at(dx, i) + (adds ? value(call.dx, type, i) : 0), 30);
    }
  };
}

}  // namespace

void add_elementwise_cases(std::vector<NamedCase>& cases, DType type) {
  const auto add = [&](std::string_view kernel, std::string_view shape, std::size_t elements,
                       std::function<void(KernelCase&)> fill) {
    cases.push_back({fmt::format("{} {} {}", kernel, name_of_type(type), shape), type, elements,
                     std::move(fill)});
  };
  for (const MatrixShape& shape : kMatrixShapes) {
    const std::string text = shape.text();
    const std::size_t count = shape.count();
    for (const Parts& parts : kParts) {
      if (count > kLargeCase && &parts >= kParts + kPartsOfSteps) continue;
      add(parts.name, text, count, [=](KernelCase& k) { scale_shift(k, type, shape, parts); });
    }
    for (const bool masks : {true, false}) {
      for (const bool adds : {false, true}) {
        add(fmt::format("ReluBackward{}{}", masks ? "_mask" : "_y", adds ? "_added" : ""), text,
            count, [=](KernelCase& k) { relu_backward(k, type, count, masks, adds, false); });
      }
      if (count > kLargeCase) continue;
      add(fmt::format("ReluBackward{}_in_place", masks ? "_mask" : "_y"), text, count,
          [=](KernelCase& k) { relu_backward(k, type, count, masks, false, true); });
    }
    cases.push_back({fmt::format("ColumnSums {} {}", name_of_type(type), text), DType::f32, count,
                     [=](KernelCase& k) { column_sums(k, type, shape); }});
    // Into a wider tensor, as a concatenation, and out of it, as its backward pass.
    const std::int32_t wide = shape.channels + 24;
    const Range widen{shape.channels, shape.channels, 0, wide, 8},
        narrow{shape.channels, wide, 8, shape.channels, 0};
    add("CopyChannels_widen", text, count,
        [=](KernelCase& k) { copy_channels(k, type, shape.rows, widen, true, false); });
    add("CopyChannels_widen_added", text, count,
        [=](KernelCase& k) { copy_channels(k, type, shape.rows, widen, false, true); });
    add("CopyChannels_narrow", text, count,
        [=](KernelCase& k) { copy_channels(k, type, shape.rows, narrow, false, false); });
    if (count > 100'000) continue;  // LRN networks have few channels and are small
    add("LrnForward", text, 10 * count,
        [=](KernelCase& k) { lrn_forward(k, type, shape, kLrns[0]); });
    add("LrnBackward_added", text, 10 * count,
        [=](KernelCase& k) { lrn_backward(k, type, shape, kLrns[0], true); });
  }
  for (const Lrn& lrn : kLrns) {
    for (const std::int32_t channels : {3, 8, 24, 40}) {
      const MatrixShape shape{70, channels};
      const std::string text = fmt::format("{} of {}", lrn.size, shape.text());
      add("LrnForward", text, shape.count(),
          [=](KernelCase& k) { lrn_forward(k, type, shape, lrn); });
      add("LrnBackward", text, shape.count(),
          [=](KernelCase& k) { lrn_backward(k, type, shape, lrn, false); });
    }
  }
  for (const Range& range : kRanges) {
    for (const int options : {0, 1, 2}) {
      for (const std::int64_t rows : {1, 301}) {
        const bool zeroes = options == 1, adds = options == 2;
        add(fmt::format("CopyChannels{}{}", zeroes ? "_zeroes" : "", adds ? "_added" : ""),
            fmt::format("{}x{}+{}to{}+{}", rows, range.channels, range.from_first,
                        range.to_channels, range.to_first),
            static_cast<std::size_t>(rows * range.to_channels),
            [=](KernelCase& k) { copy_channels(k, type, rows, range, zeroes, adds); });
      }
    }
  }
  if (type != DType::f32) return;
  for (const std::int32_t blocks : {1, 31, 32, 33, 64, 396, 1000}) {
    for (const std::int32_t channels : {1, 32, 77, 2048}) {
      const auto elements = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(channels);
      add("ColumnFinish", fmt::format("{}x{}", blocks, channels), elements,
          [=](KernelCase& k) { column_finish(k, blocks, channels); });
    }
  }
}

}  // namespace penstock::gpu
