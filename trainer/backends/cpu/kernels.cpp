// SPDX-License-Identifier: Apache-2.0
// The loops are written once, over an element type, and compiled for AVX-512, for AVX2 and for the
// baseline. The first use decides which one runs.
#include "trainer/backends/cpu/kernels.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "dataflow/error.h"
#include "dataflow/images/normalisation.h"
#include "dataflow/values/float16.h"
#include "trainer/simd.h"

namespace penstock::cpu {
namespace {

template <typename T>
struct AddArguments {
  const T *a, *b;
  T* to;
  bool relu;
};
template <typename T>
[[gnu::always_inline]] inline void loop(const AddArguments<T>& arguments, std::size_t first,
                                        std::size_t count) {
  const T* a = arguments.a + first;
  const T* b = arguments.b + first;
  T* to = arguments.to + first;
  const float floor = arguments.relu ? 0.F : -std::numeric_limits<float>::infinity();
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) store(to[i], std::max(load(a[i]) + load(b[i]), floor));
}

constexpr std::size_t kMaxTerms = 4;

template <typename T>
struct MaskedSumArguments {
  std::array<const T*, kMaxTerms> terms;
  const T* mask;
  T* to;
};
template <std::size_t Terms, bool Masked, typename T>
struct MaskedSum : MaskedSumArguments<T> {};
template <std::size_t Terms, bool Masked, typename T>
[[gnu::always_inline]] inline void loop(const MaskedSum<Terms, Masked, T>& arguments,
                                        std::size_t first, std::size_t count) {
  T* to = arguments.to + first;
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    float sum = load(arguments.terms[0][first + i]);
    if constexpr (Terms > 1) sum += load(arguments.terms[1][first + i]);
    if constexpr (Terms > 2) sum += load(arguments.terms[2][first + i]);
    if constexpr (Terms > 3) sum += load(arguments.terms[3][first + i]);
    if constexpr (Masked) sum = load(arguments.mask[first + i]) > 0 ? sum : 0.F;
    store(to[i], sum);
  }
}

template <typename T>
struct ReluArguments {
  const T* from;
  T* to;
};
template <typename T>
[[gnu::always_inline]] inline void loop(const ReluArguments<T>& arguments, std::size_t first,
                                        std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = first; i < first + count; ++i) {
    store(arguments.to[i], std::max(load(arguments.from[i]), 0.F));
  }
}

template <typename From, typename T>
struct NormaliseArguments {
  const From* pixels;
  T* to;
  std::array<float, 4> factor, offset;  // of the channel of elements first, first + 1, ...
  std::int32_t channels;
};
/// `count` interleaved elements, beginning with channel 0.
template <typename From, typename T>
[[gnu::always_inline]] inline void loop(const NormaliseArguments<From, T>& arguments,
                                        std::size_t first, std::size_t count) {
  // Twelve is a multiple of 1, 2, 3 and 4 channels, so the constants repeat with this period.
  std::array<float, 48> factor, offset;
  for (std::size_t i = 0; i < factor.size(); ++i) {
    factor[i] = arguments.factor[i % static_cast<std::size_t>(arguments.channels)];
    offset[i] = arguments.offset[i % static_cast<std::size_t>(arguments.channels)];
  }
  const From* from = arguments.pixels + first;
  T* to = arguments.to + first;
  std::size_t i = 0;
  for (; i + factor.size() <= count; i += factor.size()) {
#pragma GCC ivdep
    for (std::size_t j = 0; j < factor.size(); ++j) {
      store(to[i + j], load(from[i + j]) * factor[j] + offset[j]);
    }
  }
  for (; i < count; ++i) {
    store(to[i], load(from[i]) * factor[i % factor.size()] + offset[i % factor.size()]);
  }
}

template <typename A>
void run_parallel(const A& arguments, std::size_t count) {
  const Loop best = best_loop<A>();
  parallel_ranges(count,
                  [&](std::size_t first, std::size_t part) { best(&arguments, first, part); });
}

template <std::size_t Terms, typename T>
void run_masked_sum(const MaskedSumArguments<T>& arguments, std::size_t count) {
  if (arguments.mask != nullptr) {
    run_parallel(MaskedSum<Terms, true, T>{arguments}, count);
  } else {
    run_parallel(MaskedSum<Terms, false, T>{arguments}, count);
  }
}

/// Returns the loss of one image; adds its gradient times `scale` to `gradient`'s row.
template <typename T>
double row_loss(std::span<const float> logits, std::int32_t label, float scale, T* gradient) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - highest);
  if (gradient != nullptr) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double probability = std::exp(double{logits[i]} - highest) / sum;
      const double target = static_cast<std::int32_t>(i) == label ? 1 : 0;
      store(gradient[i], static_cast<float>(scale * (probability - target)));
    }
  }
  return std::log(sum) + highest - logits[static_cast<std::size_t>(label)];
}

template <typename Body>
void with_pixel(DType pixel, const Body& body) {
  PENSTOCK_ASSERT(pixel != DType::i32);
  if (pixel == DType::u8) body(std::uint8_t{});
  if (pixel == DType::f16) body(values::Fp16{});
  if (pixel == DType::bf16) body(Bf16{});
  if (pixel == DType::f32) body(float{});
}

/// Converts one image. `planar` is the order of the result.
template <typename From, typename T>
void normalise_image(const From* in, const BatchSpec& spec, bool planar, T* out) {
  const std::int32_t channels = spec.image.channels;
  const std::size_t elements = spec.image.elements();
  if (!planar && !spec.planar && channels <= 4) {
    NormaliseArguments<From, T> arguments{in, out, {}, {}, channels};
    for (std::int32_t c = 0; c < channels; ++c) {
      const ChannelScale scale = channel_scale(c, spec);
      arguments.factor[static_cast<std::size_t>(c)] = scale.factor;
      arguments.offset[static_cast<std::size_t>(c)] = scale.offset;
    }
    best_loop<NormaliseArguments<From, T>>()(&arguments, 0, elements);
    return;
  }
  const auto stride = static_cast<std::size_t>(channels);
  const std::size_t plane = elements / stride;
  for (std::size_t channel = 0; channel < stride; ++channel) {
    const ChannelScale scale = channel_scale(static_cast<std::int32_t>(channel), spec);
    for (std::size_t i = 0; i < plane; ++i) {
      const From& pixel = in[spec.planar ? channel * plane + i : i * stride + channel];
      const float value = load(pixel) * scale.factor + scale.offset;
      store(planar ? out[channel * plane + i] : out[i * stride + channel], value);
    }
  }
}

}  // namespace

Team::Team(std::int32_t threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
Team::~Team() { omp_set_num_threads(before_); }

void parallel_for(std::size_t count, const std::function<void(std::size_t)>& body) {
#pragma omp parallel for schedule(dynamic, 1)
  for (std::size_t i = 0; i < count; ++i) body(i);
}

void parallel_ranges(std::size_t elements,
                     const std::function<void(std::size_t first, std::size_t count)>& body) {
  constexpr std::size_t kGrain = 64;
  // For fewer elements, waking the team costs more than it saves.
  constexpr std::size_t kSmall = 4096;
  if (elements <= kSmall) return body(0, elements);
  const std::size_t grains = (elements + kGrain - 1) / kGrain;
#pragma omp parallel
  {
    const auto index = static_cast<std::size_t>(omp_get_thread_num());
    const auto team = static_cast<std::size_t>(omp_get_num_threads());
    const std::size_t first = grains * index / team * kGrain;
    const std::size_t last = std::min(elements, grains * (index + 1) / team * kGrain);
    if (first < last) body(first, last - first);
  }
}

void add(DType dtype, const void* a, const void* b, bool relu, void* to, std::size_t count) {
  with_type(dtype, [&]<typename T>(T) {
    run_parallel(AddArguments<T>{static_cast<const T*>(a), static_cast<const T*>(b),
                                 static_cast<T*>(to), relu},
                 count);
  });
}

void masked_sum(DType dtype, std::span<const void* const> terms, const void* mask, void* to,
                std::size_t count) {
  PENSTOCK_ASSERT(!terms.empty() && terms.size() <= kMaxTerms);
  with_type(dtype, [&]<typename T>(T) {
    MaskedSumArguments<T> arguments{{}, static_cast<const T*>(mask), static_cast<T*>(to)};
    for (std::size_t i = 0; i < terms.size(); ++i) {
      arguments.terms[i] = static_cast<const T*>(terms[i]);
    }
    switch (terms.size()) {
      case 1:
        return run_masked_sum<1>(arguments, count);
      case 2:
        return run_masked_sum<2>(arguments, count);
      case 3:
        return run_masked_sum<3>(arguments, count);
      default:
        return run_masked_sum<4>(arguments, count);
    }
  });
}

void relu(DType dtype, const void* from, void* to, std::size_t count) {
  with_type(dtype, [&]<typename T>(T) {
    run_parallel(ReluArguments<T>{static_cast<const T*>(from), static_cast<T*>(to)}, count);
  });
}

void dropout(DType dtype, const DropoutMask& mask, float rate, const void* from, void* to,
             std::size_t count) {
  const float scale = 1 / (1 - rate);
  with_type(dtype, [&]<typename T>(T) {
    parallel_ranges(count, [&](std::size_t first, std::size_t part) {
      for (std::size_t i = first; i < first + part; ++i) {
        const float value = load(static_cast<const T*>(from)[i]) * scale;
        store(static_cast<T*>(to)[i], mask.keeps(i) ? value : 0.F);
      }
    });
  });
}

void normalise(DType dtype, const std::byte* pixels, const BatchSpec& spec, std::int32_t valid,
               bool planar, void* to) {
  const std::size_t row = spec.image.elements();
  with_type(dtype, [&]<typename T>(T) {
    with_pixel(spec.pixel, [&]<typename From>(From) {
      const auto* const in = reinterpret_cast<const From*>(pixels);
      T* const out = static_cast<T*>(to);
      parallel_for(static_cast<std::size_t>(spec.images), [&](std::size_t image) {
        if (image < static_cast<std::size_t>(valid)) {
          normalise_image(in + image * row, spec, planar, out + image * row);
        } else {
          std::memset(out + image * row, 0, row * sizeof(T));
        }
      });
    });
  });
}

void pad_channels(DType dtype, const void* from, std::int32_t from_channels, std::int32_t first,
                  void* to, std::int32_t to_channels, std::size_t pixels) {
  const std::size_t bytes = size_of(dtype);
  const std::size_t in = bytes * static_cast<std::size_t>(from_channels);
  const std::size_t out = bytes * static_cast<std::size_t>(to_channels);
  const std::size_t skip = bytes * static_cast<std::size_t>(first);
  parallel_ranges(pixels, [&](std::size_t begin, std::size_t count) {
    auto* target = static_cast<std::byte*>(to) + begin * out;
    const auto* source = static_cast<const std::byte*>(from) + begin * in;
    std::memset(target, 0, count * out);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(target + i * out + skip, source + i * in, in);
  });
}

void cut_channels(DType dtype, const void* from, std::int32_t from_channels, std::int32_t first,
                  void* to, std::int32_t to_channels, std::size_t pixels) {
  const std::size_t bytes = size_of(dtype);
  const std::size_t in = bytes * static_cast<std::size_t>(from_channels);
  const std::size_t out = bytes * static_cast<std::size_t>(to_channels);
  const std::size_t skip = bytes * static_cast<std::size_t>(first);
  parallel_ranges(pixels, [&](std::size_t begin, std::size_t count) {
    for (std::size_t i = begin; i < begin + count; ++i) {
      std::memcpy(static_cast<std::byte*>(to) + i * out,
                  static_cast<const std::byte*>(from) + i * in + skip, out);
    }
  });
}

void take_pixels(const StridedPixels& pixels, const void* whole, void* part) {
  const auto height = static_cast<std::size_t>(pixels.height);
  const auto taken_height = static_cast<std::size_t>(pixels.taken_height);
  const auto stride = static_cast<std::size_t>(pixels.stride);
  const std::size_t row = pixels.bytes * static_cast<std::size_t>(pixels.width);
  const std::size_t taken_row = pixels.bytes * static_cast<std::size_t>(pixels.taken_width);
  parallel_for(static_cast<std::size_t>(pixels.images), [&](std::size_t image) {
    for (std::size_t y = 0; y < taken_height; ++y) {
      const auto* from = static_cast<const std::byte*>(whole) + (image * height + y * stride) * row;
      auto* to = static_cast<std::byte*>(part) + (image * taken_height + y) * taken_row;
      for (std::size_t x = 0; x < taken_row; x += pixels.bytes, from += stride * pixels.bytes) {
        std::memcpy(to + x, from, pixels.bytes);
      }
    }
  });
}

void spread_pixels(const StridedPixels& pixels, const void* part, void* whole) {
  const auto height = static_cast<std::size_t>(pixels.height);
  const auto taken_height = static_cast<std::size_t>(pixels.taken_height);
  const auto stride = static_cast<std::size_t>(pixels.stride);
  const std::size_t row = pixels.bytes * static_cast<std::size_t>(pixels.width);
  const std::size_t taken_row = pixels.bytes * static_cast<std::size_t>(pixels.taken_width);
  parallel_for(static_cast<std::size_t>(pixels.images), [&](std::size_t image) {
    for (std::size_t y = 0; y < height; ++y) {
      auto* to = static_cast<std::byte*>(whole) + (image * height + y) * row;
      std::memset(to, 0, row);
      if (y % stride != 0 || y / stride >= taken_height) continue;
      const auto* from =
          static_cast<const std::byte*>(part) + (image * taken_height + y / stride) * taken_row;
      for (std::size_t x = 0; x < taken_row; x += pixels.bytes, to += stride * pixels.bytes) {
        std::memcpy(to, from + x, pixels.bytes);
      }
    }
  });
}

void update_running(const float* mean, const float* variance, float momentum, std::int64_t n,
                    float* running_mean, float* running_variance, std::int32_t channels) {
  const float unbiased =
      n > 1 ? static_cast<float>(static_cast<double>(n) / static_cast<double>(n - 1)) : 1.F;
  for (std::int32_t c = 0; c < channels; ++c) {
    running_mean[c] += momentum * (mean[c] - running_mean[c]);
    running_variance[c] += momentum * (variance[c] * unbiased - running_variance[c]);
  }
}

void softmax_loss(const float* logits, const Batch& batch, std::int32_t classes, DType dtype,
                  void* gradient, StepResult& result) {
  const auto width = static_cast<std::size_t>(classes);
  const auto valid = static_cast<std::size_t>(batch.valid);
  const float scale = 1 / static_cast<float>(std::max(1, batch.valid));
  double loss = 0;
  result.top1 = result.top5 = 0;
  with_type(dtype, [&]<typename T>(T) {
    auto* const rows = static_cast<T*>(gradient);
    for (std::size_t image = 0; image < batch.labels.size(); ++image) {
      if (image >= valid) {
        if (rows != nullptr) std::memset(rows + image * width, 0, width * sizeof(T));
        continue;
      }
      const std::int32_t label = batch.labels[image];
      if (label < 0 || label >= classes) {
        throw DataError(
            "image {} of a batch has label {}; the model has classes 0 to {}; see --classes", image,
            label, classes - 1);
      }
      const std::span row(logits + image * width, width);
      loss += row_loss(row, label, scale, rows == nullptr ? nullptr : rows + image * width);
      const float own = row[static_cast<std::size_t>(label)];
      const auto above = std::count_if(row.begin(), row.end(), [&](float x) { return x > own; });
      if (std::isnan(own)) continue;
      if (above < 1) ++result.top1;
      if (above < 5) ++result.top5;
    }
  });
  result.loss = static_cast<float>(loss * scale);
  result.finite = std::isfinite(result.loss);
}

}  // namespace penstock::cpu
