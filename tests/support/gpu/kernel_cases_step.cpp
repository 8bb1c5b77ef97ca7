// SPDX-License-Identifier: Apache-2.0
// Cases of kernels that run once per step: scalars, pixels, dropout, loss and results.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/support/gpu/kernel_case.h"
#include "tests/support/gpu/plain_images.h"
#include "trainer/dropout.h"

namespace penstock::gpu {
namespace {

struct Pixels {
  std::int32_t images, height, width, channels, padded, valid;
  bool planar = false, blocks = false;
};

void normalise(KernelCase& k, DType from, DType type, const Pixels& p) {
  const std::int64_t per_image = std::int64_t{p.height} * p.width;
  const auto pixels = static_cast<std::size_t>(p.images * per_image);
  const auto channels = static_cast<std::size_t>(p.channels);
  const auto padded = static_cast<std::size_t>(p.padded);
  const Normalise call{.pixels = from == DType::u8 ? k.random_bytes(pixels * channels)
                                                   : k.input(from, pixels * channels, 0, 255),
                       .from = from,
                       .to = k.output(type, pixels * padded),
                       .type = type,
                       .images = p.images,
                       .pixels_per_image = per_image,
                       .channels = p.channels,
                       .padded_channels = p.padded,
                       .planar = p.planar,
                       .blocks_width = p.blocks ? p.width : 0,
                       .factor = {0.017F, -0.018F, 0.0174F, 1},
                       .offset = {-2.1F, 2.0F, -1.8F, 4},
                       .scalars = k.scalars(p.valid)};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t i = 0; i < pixels * padded; ++i) {
      const std::size_t pixel = i / padded, c = i % padded, of = std::min<std::size_t>(c, 3);
      const bool counts = c < channels && pixel < static_cast<std::size_t>(p.valid * per_image);
      const auto plane = static_cast<std::size_t>(per_image);
      const std::size_t element =
          p.planar ? (pixel / plane * channels + c) * plane + pixel % plane : pixel * channels + c;
      const double scaled =
          counts ? value(call.pixels, from, element) * double{call.factor[of]} : 0;
      const double offset = counts ? double{call.offset[of]} : 0;
      // In the order [N, H / 2, W / 2, 2, 2, padded_channels].
      const std::size_t width = static_cast<std::size_t>(p.width), row = pixel / width,
                        column = pixel % width;
      const std::size_t block = row / 2 * (width / 2) + column / 2;
      const std::size_t to = p.blocks ? block * 4 + row % 2 * 2 + column % 2 : pixel;
      r.rounded(call.to, type, to * padded + c, scaled + offset,
                std::abs(scaled) + std::abs(offset));
    }
  };
}

/// Both kernels as functions of the pixel under them, 8x8 pixels with a first row and column of
/// zeros.
void reorder_stem(KernelCase& k, DType type, std::int32_t filters, std::int32_t channels,
                  bool to_blocks) {
  const auto own = static_cast<std::size_t>(filters * 49 * channels);
  const auto blocks = static_cast<std::size_t>(filters * 256);
  const ReorderStem call{.from = k.input(type, to_blocks ? own : blocks),
                         .to = k.output(type, to_blocks ? blocks : own),
                         .type = type,
                         .filters = filters,
                         .channels = channels,
                         .to_blocks = to_blocks};
  k.call = call;
  k.formula = [=](Results& r) {
    const auto expect = [&](std::int32_t to, double expected) {
      r.rounded(call.to, type, static_cast<std::size_t>(to), expected, 0);
    };
    for (std::int32_t i = 0; i < filters * 64; ++i) {
      const std::int32_t filter = i / 64, row = i / 8 % 8, column = i % 8;
      const bool is_own = row > 0 && column > 0;
      const std::int32_t pixel = (filter * 7 + row - 1) * 7 + column - 1;
      const std::int32_t block = filter * 16 + row / 2 * 4 + column / 2;
      const std::int32_t in_blocks = block * 4 + row % 2 * 2 + column % 2;
      const auto from = [&](std::int32_t at) {
        return value(call.from, type, static_cast<std::size_t>(at));
      };
      for (std::int32_t c = 0; to_blocks && c < 4; ++c) {
        const bool exists = is_own && c < channels;
        expect(in_blocks * 4 + c, exists ? from(pixel * channels + c) : 0);
      }
      for (std::int32_t c = 0; !to_blocks && is_own && c < channels; ++c) {
        expect(pixel * channels + c, c < 4 ? from(in_blocks * 4 + c) : 0);
      }
    }
  };
}

void dropout(KernelCase& k, DType type, std::int32_t images, const ImageShape& shape, bool adds,
             bool in_place) {
  const std::size_t count = static_cast<std::size_t>(images) * shape.elements();
  DropoutApply call{.accumulate = adds,
                    .seed = 12345678901234567U,
                    .node = 17,
                    .rate = 0.3F,
                    .scalars = k.scalars(images),
                    .type = type,
                    .images = images,
                    .channels = shape.channels,
                    .pixels_per_image = std::int64_t{shape.height} * shape.width};
  call.x = in_place ? k.both(type, count, 1, 2) : k.input(type, count, 1, 2);
  call.y = in_place ? const_cast<void*>(call.x)
           : adds   ? k.both(type, count)
                    : k.output(type, count);
  k.call = call;
  k.formula = [=](Results& r) {
    plain::Images y(images, shape);
    plain::forward(Dropout{call.rate}, DropoutMask(call.seed, 7, call.node, call.rate),
                   images_of(call.x, type, images, shape), y);
    for (std::size_t i = 0; i < count; ++i) {
      r.rounded(call.y, type, i, value_at(y, i) + (adds ? value(call.y, type, i) : 0), 4);
    }
  };
}

/// One image of the loss. expf of float differences up to 40 has the error of 40 roundings, sums
/// that of a few more.
void expect_loss(const SoftmaxCrossEntropy& call, std::size_t n, double valid, Results& r) {
  const auto classes = static_cast<std::size_t>(call.classes);
  const auto logit = [&](std::size_t c) { return value(call.logits, call.type, n * classes + c); };
  const auto label = static_cast<std::size_t>(call.labels[n]);
  double largest = logit(0), sum = 0;
  std::int32_t above = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    largest = std::max(largest, logit(c));
    above += logit(c) > logit(label) ? 1 : 0;
  }
  for (std::size_t c = 0; c < classes; ++c) sum += std::exp(logit(c) - largest);
  const double far = largest - logit(label);
  r.near(call.loss, n, std::log(sum) + far, 64 * 0x1p-24 * (1 + far));
  r.equal(call.above, n, above);
  for (std::size_t c = 0; c < classes; ++c) {
    const double share = std::exp(logit(c) - largest) / sum, factor = 64 / valid;
    r.rounded(call.dlogits, call.type, n * classes + c, (share - (c == label ? 1 : 0)) * factor,
              share * factor, 64);
  }
}

void cross_entropy(KernelCase& k, DType type, std::int32_t images, std::int32_t classes,
                   std::int32_t valid) {
  const auto rows = static_cast<std::size_t>(images);
  const std::size_t columns = static_cast<std::size_t>(classes);
  const SoftmaxCrossEntropy call{.logits = k.input(type, rows * columns, -20, 20),
                                 .labels = k.integers(rows, static_cast<std::uint32_t>(classes)),
                                 .dlogits = k.output(type, rows * columns),
                                 .loss = k.output_floats(rows),
                                 .above = k.output_bits<std::int32_t>(rows),
                                 .scalars = k.scalars(valid),
                                 .type = type,
                                 .images = images,
                                 .classes = classes};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t n = 0; n < rows; ++n) {
      if (n < static_cast<std::size_t>(valid)) {
        expect_loss(call, n, valid, r);
        continue;
      }
      r.near(call.loss, n, 0, 0);
      r.equal(call.above, n, classes);
      for (std::size_t c = 0; c < columns; ++c)
        r.rounded(call.dlogits, type, n * columns + c, 0, 0);
    }
  };
}

const StepScalars& scalars_after(const Results& r, const StepScalars* of) {
  return *reinterpret_cast<const StepScalars*>(r.memory_after(of));
}
void expect_scalars(Results& r, const StepScalars* of, const StepScalars& expected) {
  const StepScalars& found = scalars_after(r, of);
  const auto same = [&](double a, double b) { r.expect(of, 0, a, b, 0); };
  same(static_cast<double>(found.step), static_cast<double>(expected.step));
  same(found.valid, expected.valid);
  same(double{found.loss_scale}, double{expected.loss_scale});
  same(double{found.good_steps}, double{expected.good_steps});
  same(double{found.hyper.learning_rate}, double{expected.hyper.learning_rate});
  same(double{found.hyper.weight_decay}, double{expected.hyper.weight_decay});
  same(double{found.hyper.gradient_clip}, double{expected.hyper.gradient_clip});
  same(static_cast<double>(found.hyper.step), static_cast<double>(expected.hyper.step));
}

/// A loss scale of 0 leaves the old one.
void set_step(KernelCase& k, float loss_scale) {
  const SetStep call{k.changing_scalars(), std::int64_t{1} << 40, 31, loss_scale};
  k.call = call;
  k.formula = [=](Results& r) {
    StepScalars expected = *call.scalars;
    expected.step = call.step;
    expected.valid = call.valid;
    if (loss_scale != 0) expected.loss_scale = loss_scale;
    expect_scalars(r, call.scalars, expected);
  };
}

void set_hyper(KernelCase& k) {
  const SetHyper call{k.changing_scalars(), Hyper{0.5F, 1e-4F, 2, 11}};
  k.call = call;
  k.repeats = false;
  k.tolerance = 4.0 / sizeof(StepScalars);  // the struct has 4 bytes of padding
  k.formula = [=](Results& r) {
    StepScalars expected = *call.scalars;
    expected.hyper = call.hyper;
    expect_scalars(r, call.scalars, expected);
  };
}

std::int32_t* flags(KernelCase& k, bool finite) {
  std::vector<std::int32_t> parts(kFiniteBlocks, 1);
  if (!finite) parts[200] = 0;
  return k.constant(parts);
}

void adapt_loss_scale(KernelCase& k, bool finite, float count_to) {
  const AdaptLossScale call{flags(k, finite), count_to, k.changing_scalars()};
  k.call = call;
  k.formula = [=](Results& r) {
    StepScalars expected = *call.scalars;
    const LossScale next =
        next_loss_scale({expected.loss_scale, expected.good_steps}, finite, count_to);
    expected.loss_scale = next.scale;
    expected.good_steps = next.good_steps;
    expect_scalars(r, call.scalars, expected);
  };
}

const StepResult& result_after(const Results& r, const StepResult* of) {
  return *reinterpret_cast<const StepResult*>(r.memory_after(of));
}

void summarise_step(KernelCase& k, std::int32_t images, std::int32_t valid) {
  const auto rows = static_cast<std::size_t>(images);
  const SummariseStep call{k.floats(rows, 0, 8), k.integers(rows, 20), images, k.scalars(valid),
                           k.output_result()};
  k.call = call;
  k.formula = [=](Results& r) {
    const StepResult& found = result_after(r, call.result);
    double sum = 0;
    std::int32_t top1 = 0, top5 = 0;
    for (std::size_t n = 0; n < static_cast<std::size_t>(valid); ++n) {
      sum += double{call.loss[n]};
      top1 += call.above[n] < 1 ? 1 : 0;
      top5 += call.above[n] < 5 ? 1 : 0;
    }
    r.expect(call.result, 0, double{found.loss}, sum / valid, 1e-6 * sum / valid);
    r.expect(call.result, 1, double{found.l2_loss}, 0, 0);
    r.expect(call.result, 2, found.top1, top1, 0);
    r.expect(call.result, 3, found.top5, top5, 0);
    r.expect(call.result, 4, found.images, valid, 0);
    r.expect(call.result, 5, found.finite, true, 0);
  };
}

/// `finite`: 1 and 0 for what CheckFinite found, -1 if it was not asked.
void summarise_update(KernelCase& k, std::int32_t chunks, int finite) {
  const SummariseUpdate call{.squares = k.floats(static_cast<std::size_t>(chunks), 0, 4),
                             .chunk_count = chunks,
                             .finite = finite < 0 ? nullptr : flags(k, finite == 1),
                             .scalars = k.scalars(1),
                             .result = k.output_result()};
  k.call = call;
  k.formula = [=](Results& r) {
    double sum = 0;
    for (std::int32_t c = 0; c < chunks; ++c) sum += double{call.squares[c]};
    const StepResult& found = result_after(r, call.result);
    r.expect(call.result, 1, double{found.l2_loss}, 0.5e-3 * sum, 1e-6 * sum);
    r.expect(call.result, 5, found.finite, finite != 0 && call.result->finite, 0);
  };
}

}  // namespace

void add_step_cases(std::vector<NamedCase>& cases, DType type) {
  const auto add = [&](std::string name, std::size_t elements,
                       std::function<void(KernelCase&)> fill) {
    cases.push_back({std::move(name), type, elements, std::move(fill)});
  };
  const std::string_view type_name = name_of_type(type);
  for (const Pixels& p :
       {Pixels{2, 224, 224, 3, 4, 2}, Pixels{3, 17, 15, 3, 8, 2}, Pixels{2, 9, 7, 1, 1, 2},
        Pixels{2, 5, 5, 3, 3, 1}, Pixels{1, 4, 3, 17, 17, 1}, Pixels{4, 7, 4, 3, 4, 3},
        Pixels{4, 1, 7, 3, 4, 3}, Pixels{4, 30, 10, 1, 8, 3}, Pixels{3, 17, 16, 3, 8, 2, true},
        Pixels{4, 7, 4, 3, 4, 3, true}, Pixels{2, 224, 224, 3, 4, 2, false, true},
        Pixels{3, 6, 8, 3, 4, 2, false, true}, Pixels{2, 4, 10, 3, 4, 2, false, true},
        Pixels{3, 10, 6, 1, 4, 2, false, true}, Pixels{2, 6, 12, 3, 4, 1, true, true}}) {
    for (const DType from : {DType::u8, DType::f16, DType::bf16, DType::f32}) {
      add(fmt::format("Normalise{}{} {}_to_{} {}x{}x{}x{}_{}", p.planar ? "_planar" : "",
                      p.blocks ? "_blocks" : "", name_of_type(from), type_name, p.images, p.height,
                      p.width, p.channels, p.padded),
          static_cast<std::size_t>(p.images * p.height * p.width * p.padded),
          [=](KernelCase& k) { normalise(k, from, type, p); });
    }
  }
  for (const auto& [filters, channels] : {std::pair(64, 4), std::pair(64, 8), std::pair(3, 3)}) {
    for (const bool to_blocks : {true, false}) {
      add(fmt::format("ReorderStem{} {} {}x{}", to_blocks ? "" : "_back", type_name, filters,
                      channels),
          static_cast<std::size_t>(filters * 256),
          [=, filters = filters, channels = channels](KernelCase& k) {
            reorder_stem(k, type, filters, channels, to_blocks);
          });
    }
  }
  for (const auto& [images, shape] :
       {std::pair(8, ImageShape{1, 1, 4096}), std::pair(3, ImageShape{3, 5, 17}),
        std::pair(2, ImageShape{3, 7, 16})}) {
    const std::size_t count = static_cast<std::size_t>(images) * shape.elements();
    for (const int options : {0, 1, 2}) {
      const bool adds = options == 1, in_place = options == 2;
      add(fmt::format("DropoutApply{} {} {}x{}",
                      adds       ? "_added"
                      : in_place ? "_in_place"
                                 : "",
                      type_name, count, shape.channels),
          count, [=, images = images, shape = shape](KernelCase& k) {
            dropout(k, type, images, shape, adds, in_place);
          });
    }
  }
  for (const auto& [images, classes, valid] :
       {std::tuple(64, 1000, 64), std::tuple(5, 7, 3), std::tuple(2, 1, 2), std::tuple(6, 256, 4),
        std::tuple(6, 1001, 4)}) {
    add(fmt::format("SoftmaxCrossEntropy {} {}x{}", type_name, images, classes),
        static_cast<std::size_t>(images * classes),
        [=, images = images, classes = classes, valid = valid](KernelCase& k) {
          cross_entropy(k, type, images, classes, valid);
        });
  }
  if (type != DType::f32) return;
  add("SetStep", 1, [](KernelCase& k) { set_step(k, 128); });
  add("SetStep_keeps_scale", 1, [](KernelCase& k) { set_step(k, 0); });
  add("SetHyper", 1, set_hyper);
  for (const bool finite : {true, false}) {
    for (const float count_to : {1.F, 1.5F, 9.F}) {
      add(fmt::format("AdaptLossScale{} {}", finite ? "" : "_not_finite", count_to), 1,
          [=](KernelCase& k) { adapt_loss_scale(k, finite, count_to); });
    }
  }
  for (const auto& [images, valid] :
       {std::pair(256, 256), std::pair(37, 30), std::pair(700, 601)}) {
    add(fmt::format("SummariseStep {}", images), static_cast<std::size_t>(images),
        [images = images, valid = valid](KernelCase& k) { summarise_step(k, images, valid); });
  }
  for (const std::int32_t chunks : {1, 1700}) {
    for (const int finite : {-1, 0, 1}) {
      add(fmt::format("SummariseUpdate{} {}",
                      finite < 0    ? ""
                      : finite == 0 ? "_not_finite"
                                    : "_finite",
                      chunks),
          static_cast<std::size_t>(chunks),
          [=](KernelCase& k) { summarise_update(k, chunks, finite); });
    }
  }
}

}  // namespace penstock::gpu
