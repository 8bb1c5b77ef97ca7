// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/filter_taps.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr Filter kRounds[] = {Filter::nearest,    Filter::bilinear,   Filter::bicubic,
                              Filter::area,       Filter::tf_nearest, Filter::tf_bilinear,
                              Filter::tf_bicubic, Filter::area};
constexpr Filter kFilters[] = {Filter::bilinear,   Filter::bicubic,     Filter::area,
                               Filter::nearest,    Filter::tf_nearest,  Filter::tf_bilinear,
                               Filter::tf_bicubic, Filter::cv_bilinear, Filter::cv_bicubic};
static_assert(std::size(kResizeValues) == std::size(kFilters) + 2);

double keys_cubic(double a, double distance) {
  const double d = std::abs(distance);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return a * (((d - 5) * d + 8) * d - 4);
  return 0;
}

}  // namespace

std::span<const Filter> parse_resize(std::string_view component, std::string_view text) {
  const std::size_t i =
      parse_choice(text, kResizeValues, std::string(component) + ": option 'resize'");
  if (i < std::size(kFilters)) return std::span(kFilters).subspan(i, 1);
  return std::span(kRounds).subspan((i - std::size(kFilters)) * 4, 4);
}

bool is_antialiased(Filter filter) {
  return filter == Filter::bilinear || filter == Filter::bicubic || filter == Filter::area;
}

bool overshoots(Filter filter) {
  return filter == Filter::bicubic || filter == Filter::tf_bicubic || filter == Filter::cv_bicubic;
}

void FilterTaps::build(const Stretch& stretch, std::int32_t outputs, bool mirrored, Filter filter) {
  PENSTOCK_ASSERT(stretch.low < stretch.high && stretch.length > 0 && outputs > 0);
  const double scale = stretch.length / outputs;
  const bool corners =
      filter == Filter::tf_nearest || filter == Filter::tf_bilinear || filter == Filter::tf_bicubic;
  const bool reversed = mirrored && !corners;
  const auto centre = [&stretch, scale](std::int32_t i) {
    return stretch.begin + (i + 0.5) * scale;
  };
  const auto corner = [&stretch, scale, mirrored](std::int32_t i) {
    const double place = i * scale + 0.5;
    return stretch.begin + (mirrored ? stretch.length - place : place);
  };
  const auto triangle = [](double d) { return std::max(0.0, 1 - std::abs(d)); };
  const auto steep_cubic = [](double d) { return keys_cubic(-0.75, d); };
  // When it enlarges, a filter interpolates between source pixels. When it shrinks, it averages
  // over the area of an output.
  const double support = std::max(1.0, scale), step = 1 / support;
  switch (filter) {
    case Filter::bilinear:
      return fill(stretch, outputs, reversed, false, support, centre,
                  [step](double d) { return std::max(0.0, 1 - std::abs(d) * step); });
    case Filter::bicubic:
      return fill(stretch, outputs, reversed, false, 2 * support, centre,
                  [step](double d) { return keys_cubic(-0.5, d * step); });
    case Filter::area:
      return fill(stretch, outputs, reversed, false, scale / 2 + 0.5, centre, [scale](double d) {
        return std::max(0.0, std::min(d + 0.5, scale / 2) - std::max(d - 0.5, -scale / 2));
      });
    case Filter::nearest:
      return pick(stretch, outputs, reversed, centre);
    case Filter::tf_nearest:
      return pick(stretch, outputs, reversed, [&](std::int32_t i) {
        if (!mirrored) return stretch.begin + i * scale;
        return std::ceil(stretch.begin + stretch.length - i * scale) - 1;
      });
    case Filter::tf_bilinear:
      return fill(stretch, outputs, reversed, true, 1, corner, triangle);
    case Filter::tf_bicubic:
      return fill(stretch, outputs, reversed, true, 2, corner, steep_cubic);
    case Filter::cv_bilinear:
      return fill(stretch, outputs, reversed, true, 1, centre, triangle);
    case Filter::cv_bicubic:
      return fill(stretch, outputs, reversed, true, 2, centre, steep_cubic);
  }
}

void FilterTaps::begin(const Stretch& stretch, std::int32_t outputs, double radius) {
  stride_ = static_cast<std::size_t>(2 * std::ceil(radius)) + 1;
  ranges_.resize(static_cast<std::size_t>(outputs));
  weights_.resize(static_cast<std::size_t>(outputs) * stride_);
  reads_ = {stretch.high, stretch.low};
  max_count_ = 1;
}

template <typename Centre, typename Weight>
void FilterTaps::fill(const Stretch& stretch, std::int32_t outputs, bool reversed, bool repeats,
                      double radius, Centre centre, Weight weight) {
  begin(stretch, outputs, radius);
  for (std::int32_t i = 0; i < outputs; ++i) {
    const double middle = centre(i);
    const auto first = static_cast<std::int32_t>(std::floor(middle - radius + 0.5));
    const auto end = static_cast<std::int32_t>(std::floor(middle + radius + 0.5));
    PixelRange range{std::clamp(first, stretch.low, stretch.high - 1), 0};
    range.end = std::clamp(end, range.first + 1, stretch.high);
    const std::int32_t output = reversed ? outputs - 1 - i : i;
    float* const weights = weights_.data() + static_cast<std::size_t>(output) * stride_;
    std::fill(weights, weights + stride_, 0.0F);
    // Pixels beyond the edge either repeat the last pixel or are left out.
    const std::int32_t from = repeats ? first : range.first, to = repeats ? end : range.end;
    for (std::int32_t k = from; k < to; ++k) {
      const std::int32_t at = std::clamp(k, range.first, range.end - 1) - range.first;
      weights[at] += static_cast<float>(weight(k + 0.5 - middle));
    }
    finish(output, range);
  }
}

template <typename Place>
void FilterTaps::pick(const Stretch& stretch, std::int32_t outputs, bool reversed, Place place) {
  begin(stretch, outputs, 0);
  for (std::int32_t i = 0; i < outputs; ++i) {
    const auto pixel = static_cast<std::int32_t>(std::floor(place(i)));
    const std::int32_t first = std::clamp(pixel, stretch.low, stretch.high - 1);
    const std::int32_t output = reversed ? outputs - 1 - i : i;
    weights_[static_cast<std::size_t>(output) * stride_] = 1;
    finish(output, {first, first + 1});
  }
}

/// Normalises the weights of an output to a sum of one, and records its range.
void FilterTaps::finish(std::int32_t output, const PixelRange& range) {
  float* const weights = weights_.data() + static_cast<std::size_t>(output) * stride_;
  const std::int32_t count = range.end - range.first;
  float sum = 0;
  for (std::int32_t k = 0; k < count; ++k) sum += weights[k];
  // If all weights are zero, the stretch is outside the readable pixels; use the nearest of them.
  if (!(sum > 0)) {
    std::fill(weights, weights + stride_, 0.0F);
    sum = weights[0] = 1;
  }
  const float factor = 1 / sum;
  for (std::int32_t k = 0; k < count; ++k) weights[k] *= factor;
  max_count_ = std::max(max_count_, count);
  ranges_[static_cast<std::size_t>(output)] = range;
  reads_ = {std::min(reads_.first, range.first), std::max(reads_.end, range.end)};
}

}  // namespace penstock
