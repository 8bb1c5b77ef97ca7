// SPDX-License-Identifier: Apache-2.0
// Cases of batch norm's kernels.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/support/gpu/kernel_case.h"
#include "tests/support/gpu/plain_images.h"

namespace penstock::gpu {
namespace {

constexpr float kEpsilon = 1e-5F, kMomentum = 0.1F;

/// Sums of two f32 per row block and channel, and what they should add up to.
std::size_t partials(const MatrixShape& s) {
  return static_cast<std::size_t>(sum_blocks(s.rows, s.channels)) * 2 * s.columns();
}
/// Compares the two sums of a channel over all blocks.
void expect_sums(Results& r, const float* partial, const MatrixShape& s, std::size_t channel,
                 const double (&expected)[2], const double (&sizes)[2]) {
  for (const std::size_t which : {0U, 1U}) {
    double sum = 0;
    for (std::size_t k = which; k < partials(s) / s.columns(); k += 2) {
      sum += r.after(partial, DType::f32, k * s.columns() + channel);
    }
    r.expect(partial, channel, sum, expected[which], 16 * 0x1p-24 * sizes[which]);
  }
}

void sums(KernelCase& k, DType type, const MatrixShape& s) {
  const BatchNormSums call{k.input(type, s.count()), k.output_floats(partials(s)), type, s.rows,
                           s.channels};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t c = 0; c < s.columns(); ++c) {
      double expected[2] = {}, sizes[2] = {};
      for (std::size_t i = c; i < s.count(); i += s.columns()) {
        const double d = value(call.x, type, i) - value(call.x, type, c);
        expected[0] += d;
        expected[1] += d * d;
        sizes[0] += std::abs(d);
      }
      sizes[1] = expected[1];
      expect_sums(r, call.partial, s, c, expected, sizes);
    }
  };
}

/// The sums of BatchNormSums in double, in one block.
std::vector<float> sums_of(const void* x, DType type, const MatrixShape& s, bool pivots) {
  std::vector<float> partial(2 * s.columns());
  for (std::size_t c = 0; c < s.columns(); ++c) {
    double of[2] = {};
    for (std::size_t i = c; i < s.count(); i += s.columns()) {
      const double d = value(x, type, i) - (pivots ? value(x, type, c) : 0);
      of[0] += d;
      of[1] += d * d;
    }
    for (const std::size_t which : {0U, 1U}) {
      partial[which * s.columns() + c] = static_cast<float>(of[which]);
    }
  }
  return partial;
}

/// `low` and `high`: the range of x. Without `all`: sums of the DNN library, which need no pivot;
/// the running statistics and the copies in the short type are not wanted.
void finish(KernelCase& k, DType type, const MatrixShape& s, double low, double high, bool all) {
  const void* const x = k.input(type, s.count(), low, high);
  const std::vector<float> partial = sums_of(x, type, s, all);
  BatchNormFinish call{.partial = k.constant(partial),
                       .blocks = 1,
                       .pivot = all ? x : nullptr,
                       .type = type,
                       .rows = s.rows,
                       .channels = s.channels,
                       .scale = k.floats(s.columns(), 0.5, 2),
                       .shift = k.floats(s.columns()),
                       .epsilon = kEpsilon,
                       .momentum = kMomentum,
                       .mean = k.output_floats(s.columns()),
                       .inverse_deviation = k.output_floats(s.columns()),
                       .multiplier = k.output_floats(s.columns()),
                       .addend = k.output_floats(s.columns())};
  if (all) {
    call.running_mean = static_cast<float*>(k.both(DType::f32, s.columns(), -1, 1));
    call.running_variance = static_cast<float*>(k.both(DType::f32, s.columns(), 0.5, 2));
    call.short_multiplier = k.output(type, s.columns());
    call.short_addend = k.output(type, s.columns());
  }
  k.call = call;
  k.tolerance = 1e-4;  // the variance of few rows is a difference of sums that nearly cancel
  const double spread = all ? high - low : std::max(std::abs(low), std::abs(high));
  k.formula = [=](Results& r) {
    const std::vector<plain::Moments> moments =
        plain::moments_of(images_of(x, type, 1, image_of(s)));
    // The errors of the sums, which are f32: of x - x[0], and of its square.
    const double error = 2 * 0x1p-24 * spread;
    for (std::size_t c = 0; c < s.columns(); ++c) {
      const auto [mean, variance] = moments[c];
      const double inverse = 1 / std::sqrt(variance + double{kEpsilon});
      r.near(call.mean, c, mean, error + 0x1p-24 * std::abs(mean));
      // d(inverse) = inverse^3 / 2 d(variance)
      const double off = inverse * inverse * spread * error + 4 * 0x1p-24;
      r.near(call.inverse_deviation, c, inverse, inverse * off);
      const double multiplier = double{call.scale[c]} * inverse;
      const double addend = double{call.shift[c]} - mean * multiplier;
      r.near(call.multiplier, c, multiplier, multiplier * off);
      r.near(call.addend, c, addend,
             (std::abs(mean) * off + error) * multiplier + 0x1p-23 + 0x1p-24 * std::abs(addend));
      if (!all) continue;
      const auto rows = static_cast<double>(s.rows);
      const double unbiased = variance * rows / std::max(1., rows - 1);
      r.near(call.running_mean, c, double{call.running_mean[c]} * 0.9 + mean * 0.1,
             error + 0x1p-22 * (1 + std::abs(mean)));
      r.near(call.running_variance, c, double{call.running_variance[c]} * 0.9 + unbiased * 0.1,
             error * spread + 0x1p-22 * (2 + unbiased));
      r.rounded(call.short_multiplier, type, c, r.after(call.multiplier, DType::f32, c), 0);
      r.rounded(call.short_addend, type, c, r.after(call.addend, DType::f32, c), 0);
    }
  };
}

void from_running(KernelCase& k, std::int32_t channels) {
  const auto count = static_cast<std::size_t>(channels);
  const BatchNormFromRunning call{.running_mean = k.floats(count),
                                  .running_variance = k.floats(count, 0.5, 2),
                                  .scale = k.floats(count, 0.5, 2),
                                  .shift = k.floats(count),
                                  .epsilon = kEpsilon,
                                  .multiplier = k.output_floats(count),
                                  .addend = k.output_floats(count),
                                  .channels = channels};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t c = 0; c < count; ++c) {
      const double multiplier =
          double{call.scale[c]} / std::sqrt(double{call.running_variance[c]} + double{kEpsilon});
      r.rounded(call.multiplier, DType::f32, c, multiplier, 0);
      r.rounded(call.addend, DType::f32, c,
                double{call.shift[c]} - double{call.running_mean[c]} * multiplier, 0);
    }
  };
}

/// `keeps`: writes the gradients that pass, over dy.
void backward_sums(KernelCase& k, DType type, const MatrixShape& s, bool masks, bool keeps) {
  BatchNormBackwardSums call{.type = type, .rows = s.rows, .channels = s.channels};
  call.dy = keeps ? k.both(type, s.count(), -1, 1) : k.input(type, s.count(), -1, 1);
  if (masks) call.mask = k.random_bytes((s.count() + 7) / 8);
  call.x = k.input(type, s.count());
  call.mean = k.floats(s.columns(), 0, 1);
  call.inverse_deviation = k.floats(s.columns(), 0.5, 2);
  if (keeps) call.masked = const_cast<void*>(call.dy);
  call.partial = k.output_floats(partials(s));
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t c = 0; c < s.columns(); ++c) {
      double expected[2] = {}, sizes[2] = {};
      for (std::size_t i = c; i < s.count(); i += s.columns()) {
        const double g = !masks || bit_of(call.mask, i) ? value(call.dy, type, i) : 0;
        const double product =
            g * (value(call.x, type, i) - double{call.mean[c]}) * double{call.inverse_deviation[c]};
        expected[0] += g;
        expected[1] += product;
        sizes[0] += std::abs(g);
        sizes[1] += std::abs(product) + 0x1p-2;
        if (keeps) r.rounded(call.masked, type, i, g, 0);
      }
      expect_sums(r, call.partial, s, c, expected, sizes);
    }
  };
}

/// The factors give the gradient of x.
void backward_finish(KernelCase& k, const MatrixShape& s) {
  const auto* const x = static_cast<const float*>(k.input(DType::f32, s.count()));
  const float* const dy = k.floats(s.count());
  const plain::Images plain_x = images_of(x, DType::f32, 1, image_of(s));
  const std::vector<plain::Moments> moments = plain::moments_of(plain_x);
  constexpr std::size_t kBlocks = 3;
  std::vector<float> partial(kBlocks * 2 * s.columns()), mean, inverse;
  for (const auto& [of, variance] : moments) {
    mean.push_back(static_cast<float>(of));
    inverse.push_back(static_cast<float>(1 / std::sqrt(variance + 1e-5)));
  }
  for (std::size_t i = 0; i < s.count(); ++i) {
    const std::size_t c = i % s.columns(), block = i * kBlocks / s.count();
    float* const of = partial.data() + block * 2 * s.columns() + c;
    of[0] += dy[i];
    of[s.columns()] += dy[i] * (x[i] - mean[c]) * inverse[c];
  }
  const BatchNormBackwardFinish call{.partial = k.constant(partial),
                                     .blocks = kBlocks,
                                     .rows = s.rows,
                                     .channels = s.channels,
                                     .scale = k.floats(s.columns(), 0.5, 2),
                                     .mean = k.constant(mean),
                                     .inverse_deviation = k.constant(inverse),
                                     .dscale = k.output_floats(s.columns()),
                                     .dshift = k.output_floats(s.columns()),
                                     .dy_factor = k.output_floats(s.columns()),
                                     .x_factor = k.output_floats(s.columns()),
                                     .constant = k.output_floats(s.columns())};
  k.call = call;
  k.formula = [=](Results& r) {
    const std::vector<double> scale(call.scale, call.scale + s.columns());
    std::vector<double> dscale(s.columns()), dshift(s.columns());
    plain::Images dx(1, image_of(s));
    plain::backward(BatchNorm{}, plain_x, moments, scale, images_of(dy, DType::f32, 1, image_of(s)),
                    &dx, dscale, dshift);
    const double size = 1 + static_cast<double>(s.rows);
    for (std::size_t c = 0; c < s.columns(); ++c) {
      r.near(call.dscale, c, dscale[c], 32 * 0x1p-24 * size);
      r.near(call.dshift, c, dshift[c], 32 * 0x1p-24 * size);
    }
    const auto of = [&](const float* factor, std::size_t c) {
      return r.after(factor, DType::f32, c);
    };
    for (std::size_t i = 0; i < s.count(); ++i) {
      const std::size_t c = i % s.columns();
      r.expect(call.constant, c,
               of(call.dy_factor, c) * double{dy[i]} + of(call.x_factor, c) * double{x[i]} +
                   of(call.constant, c),
               value_at(dx, i),
               64 * 0x1p-24 * (1 + std::abs(value_at(dx, i)) + double{inverse[c] * inverse[c]}));
    }
  };
}

/// Without accumulation, the call writes over dy.
void backward_apply(KernelCase& k, DType type, const MatrixShape& s, bool masks, bool adds,
                    bool dual) {
  BatchNormBackwardApply call{
      .accumulate = adds, .type = type, .rows = s.rows, .channels = s.channels};
  call.dy = adds ? k.input(type, s.count()) : k.both(type, s.count());
  if (masks) call.mask = k.random_bytes((s.count() + 7) / 8);
  call.x = k.input(type, s.count());
  call.dy_factor = k.floats(s.columns());
  call.x_factor = k.floats(s.columns());
  call.constant = k.floats(s.columns());
  call.dx = adds ? k.both(type, s.count()) : const_cast<void*>(call.dy);
  if (dual) {
    call.x2 = k.input(type, s.count());
    call.dy_factor2 = k.floats(s.columns());
    call.x_factor2 = k.floats(s.columns());
    call.constant2 = k.floats(s.columns());
    call.dx2 = adds ? k.both(type, s.count()) : k.output(type, s.count());
  }
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t i = 0; i < s.count(); ++i) {
      const std::size_t c = i % s.columns();
      const double g = !masks || bit_of(call.mask, i) ? value(call.dy, type, i) : 0;
      const auto expect = [&](void* dx, const void* x, const float* by_dy, const float* by_x,
                              const float* constant) {
        r.rounded(dx, type, i,
                  double{by_dy[c]} * g + double{by_x[c]} * value(x, type, i) + double{constant[c]} +
                      (adds ? value(dx, type, i) : 0),
                  8);
      };
      expect(call.dx, call.x, call.dy_factor, call.x_factor, call.constant);
      if (dual) expect(call.dx2, call.x2, call.dy_factor2, call.x_factor2, call.constant2);
    }
  };
}

}  // namespace

void add_batch_norm_cases(std::vector<NamedCase>& cases, DType type) {
  const auto add = [&](std::string_view kernel, DType tolerance, const MatrixShape& shape,
                       std::function<void(KernelCase&)> fill) {
    cases.push_back({fmt::format("{} {} {}", kernel, name_of_type(type), shape.text()), tolerance,
                     shape.count(), std::move(fill)});
  };
  for (const MatrixShape& s : kMatrixShapes) {
    add("BatchNormSums", DType::f32, s, [=](KernelCase& k) { sums(k, type, s); });
    add("BatchNormFinish", DType::f32, s, [=](KernelCase& k) { finish(k, type, s, -2, 3, true); });
    for (const bool masks : {false, true}) {
      const char* const masked = masks ? "_masked" : "";
      for (const bool keeps : {false, true}) {
        if (s.count() > kLargeCase && keeps != masks) continue;
        add(fmt::format("BatchNormBackwardSums{}{}", masked, keeps ? "_kept" : ""), DType::f32, s,
            [=](KernelCase& k) { backward_sums(k, type, s, masks, keeps); });
      }
      for (const int options : {0, 1, 2, 3}) {
        const bool adds = (options & 1) != 0, dual = (options & 2) != 0;
        if (s.count() > kLargeCase && (!masks || options == 3)) continue;
        add(fmt::format("BatchNormBackwardApply{}{}{}", masked, dual ? "_dual" : "",
                        adds ? "_added" : ""),
            type, s, [=](KernelCase& k) { backward_apply(k, type, s, masks, adds, dual); });
      }
    }
    if (type != DType::f32) continue;
    add("BatchNormFromRunning", type, s, [=](KernelCase& k) { from_running(k, s.channels); });
    if (s.rows > 2) {
      add("BatchNormBackwardFinish", type, s, [=](KernelCase& k) { backward_finish(k, s); });
    }
  }
  const MatrixShape small{40, 40}, far{4000, 8};
  add("BatchNormFinish_library", DType::f32, small,
      [=](KernelCase& k) { finish(k, type, small, -2, 3, false); });
  // Without the first row as a pivot, a variance of 1/12 would be lost next to squares near 10^6.
  if (type == DType::f32) {
    add("BatchNormFinish_far", type, far,
        [=](KernelCase& k) { finish(k, type, far, 1000, 1001, true); });
  }
}

}  // namespace penstock::gpu
