// SPDX-License-Identifier: Apache-2.0
// Channels that lie beside each other are a group: 16 channels, or all of them. The pixels of a
// group in one image are consecutive in memory, so the channel of an element repeats with a period,
// and one loop serves both layouts. One thread handles all images of a group: it sums first and
// then writes, while the group may still be in a cache. If there are fewer groups than threads,
// images are divided.
#include "trainer/backends/cpu/batch_norm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "trainer/backends/cpu/kernels.h"
#include "trainer/simd.h"

namespace penstock::cpu {
namespace {

constexpr std::size_t kLanes = Sixteen::kSize;
/// Vectors that a loop handles at once, so that sums do not wait for each other.
constexpr std::size_t kVectors = 4;

/// Arguments of a loop over rows of `row` consecutive elements, a multiple of 16. The arrays of
/// coefficients and sums have one element for each of a row's. Each loop uses some of the members.
template <typename T>
struct Rows {
  std::size_t row = 0;
  const T *x = nullptr, *other = nullptr;  // other: residual or gradient of y
  T* out = nullptr;
  const float *a = nullptr, *b = nullptr, *c = nullptr, *d = nullptr;
  double *first = nullptr, *second = nullptr;
  float floor = 0;

  void skip(std::size_t elements) {
    x += elements;
    if (other != nullptr) other += elements;
    if (out != nullptr) out += elements;
  }
};

/// Some columns of the rows, in registers.
template <std::size_t Vectors>
using Columns = std::array<Sixteen, Vectors>;

template <std::size_t Vectors>
[[gnu::always_inline]] inline void load_columns(const float* row, Columns<Vectors>& columns) {
  for (std::size_t v = 0; v < Vectors; ++v) load(row + v * kLanes, columns[v]);
}
template <std::size_t Vectors>
[[gnu::always_inline]] inline void add_to(double* sums, const Columns<Vectors>& columns) {
  for (std::size_t v = 0; v < Vectors; ++v) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[v * kLanes + lane] += double{columns[v].v[lane]};
    }
  }
}

/// Columns that are visited apart do not look like a stream to the processor, so the loops ask for
/// the same place in the next part.
template <typename T>
[[gnu::always_inline]] inline void fetch(const T* value, std::size_t ahead) {
  __builtin_prefetch(value + ahead, 0, 2);
}

/// first += x - a, second += (x - a)^2.
template <typename T>
struct Moments : Rows<T> {};
template <std::size_t Vectors, typename T>
[[gnu::always_inline]] inline void over(const Moments<T>& rows, std::size_t at, std::size_t count) {
  Columns<Vectors> first{}, second{}, a;
  load_columns<Vectors>(rows.a + at, a);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t v = 0; v < Vectors; ++v) {
      const std::size_t i = r * rows.row + at + v * kLanes;
      fetch(rows.x + i, count * rows.row);
      Sixteen x;
      load(rows.x + i, x);
      x.v -= a[v].v;
      first[v].v += x.v;
      second[v].v += x.v * x.v;
    }
  }
  add_to<Vectors>(rows.first + at, first);
  add_to<Vectors>(rows.second + at, second);
}

/// out = max(a x + b [+ other], floor).
template <bool Residual, typename T>
struct Apply : Rows<T> {};
template <std::size_t Vectors, bool Residual, typename T>
[[gnu::always_inline]] inline void over(const Apply<Residual, T>& rows, std::size_t at,
                                        std::size_t count) {
  Columns<Vectors> a, b;
  load_columns<Vectors>(rows.a + at, a);
  load_columns<Vectors>(rows.b + at, b);
  const Sixteen::Floats floor = Sixteen::Floats{} + rows.floor;
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t v = 0; v < Vectors; ++v) {
      const std::size_t i = r * rows.row + at + v * kLanes;
      fetch(rows.x + i, count * rows.row);
      Sixteen y;
      load(rows.x + i, y);
      y.v = y.v * a[v].v + b[v].v;
      if constexpr (Residual) {
        fetch(rows.other + i, count * rows.row);
        Sixteen other;
        load(rows.other + i, other);
        y.v += other.v;
      }
      y.v = y.v < floor ? floor : y.v;
      store(rows.out + i, y);
    }
  }
}

/// The gradient of y, or 0 if the ReLU cut it: a x + b <= 0.
template <bool Relu, typename T>
[[gnu::always_inline]] inline void load_passed(const T* gradient, const Sixteen& x,
                                               const Sixteen& a, const Sixteen& b, Sixteen& to) {
  load(gradient, to);
  if constexpr (Relu) to.v = x.v * a.v + b.v > 0 ? to.v : Sixteen::Floats{};
}

/// first += g, second += g (x - c).
template <bool Relu, typename T>
struct GradientSums : Rows<T> {};
template <std::size_t Vectors, bool Relu, typename T>
[[gnu::always_inline]] inline void over(const GradientSums<Relu, T>& rows, std::size_t at,
                                        std::size_t count) {
  Columns<Vectors> first{}, second{}, a, b, c;
  load_columns<Vectors>(rows.a + at, a);
  load_columns<Vectors>(rows.b + at, b);
  load_columns<Vectors>(rows.c + at, c);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t v = 0; v < Vectors; ++v) {
      const std::size_t i = r * rows.row + at + v * kLanes;
      fetch(rows.x + i, count * rows.row);
      fetch(rows.other + i, count * rows.row);
      Sixteen x, g;
      load(rows.x + i, x);
      load_passed<Relu>(rows.other + i, x, a[v], b[v], g);
      first[v].v += g.v;
      second[v].v += g.v * (x.v - c[v].v);
    }
  }
  add_to<Vectors>(rows.first + at, first);
  add_to<Vectors>(rows.second + at, second);
}

/// out = a g + c x + d.
template <bool Relu, typename T>
struct Gradient : Rows<T> {};
template <std::size_t Vectors, bool Relu, typename T>
[[gnu::always_inline]] inline void over(const Gradient<Relu, T>& rows, std::size_t at,
                                        std::size_t count) {
  Columns<Vectors> a, b, c, d;
  load_columns<Vectors>(rows.a + at, a);
  load_columns<Vectors>(rows.b + at, b);
  load_columns<Vectors>(rows.c + at, c);
  load_columns<Vectors>(rows.d + at, d);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t v = 0; v < Vectors; ++v) {
      const std::size_t i = r * rows.row + at + v * kLanes;
      fetch(rows.x + i, count * rows.row);
      fetch(rows.other + i, count * rows.row);
      Sixteen x, g;
      load(rows.x + i, x);
      load_passed<Relu>(rows.other + i, x, a[v], b[v], g);
      g.v = a[v].v * g.v + (c[v].v * x.v + d[v].v);
      store(rows.out + i, g);
    }
  }
}

/// Called by best_loop(): all columns of `count` rows.
template <typename Kind>
requires requires(const Kind& rows) { rows.row; }
[[gnu::always_inline]] inline void loop(const Kind& rows, std::size_t, std::size_t count) {
  std::size_t at = 0;
  for (; at + kVectors * kLanes <= rows.row; at += kVectors * kLanes) {
    over<kVectors>(rows, at, count);
  }
  for (; at < rows.row; at += kLanes) over<1>(rows, at, count);
}

/// Runs a loop over `elements` elements, in parts that stay in a cache while their columns are
/// visited. Sums of one part are f32.
template <typename Kind>
void run_rows(const Kind& all, std::size_t elements) {
  constexpr std::size_t kElementsAtOnce = 8192;
  const Loop best = best_loop<Kind>();
  const std::size_t most = std::max<std::size_t>(1, kElementsAtOnce / all.row);
  for (std::size_t done = 0; done < elements;) {
    Kind part = all;
    part.skip(done);
    part.row = std::min(all.row, elements - done);  // the last row may be shorter
    const std::size_t count = std::min(most, (elements - done) / part.row);
    best(&part, 0, count);
    done += count * part.row;
  }
}

/// Where the elements of a shape lie. A group is the channels that lie beside each other.
struct Places {
  explicit Places(const BatchNormShape& shape)
      : together(static_cast<std::size_t>(shape.together)),
        groups(static_cast<std::size_t>(shape.channels / shape.together)),
        images(static_cast<std::size_t>(shape.images)),
        elements(shape.pixels * together),
        row(together < kVectors * kLanes ? together * kVectors : together) {}

  /// The first element of a group of an image.
  std::size_t at(std::size_t group, std::size_t image) const {
    return (image * groups + group) * elements;
  }
  std::size_t channel(std::size_t group, std::size_t i) const {
    return group * together + i % together;
  }

  std::size_t together, groups, images;
  std::size_t elements;  ///< of a group of an image
  std::size_t row;       ///< elements of a row: one pixel, or several if it has few channels
};

/// One f32 for each element of the rows of each group.
class RowValues {
 public:
  explicit RowValues(const Places& places) : row_(places.row), values_(places.groups * row_) {}
  float* of(std::size_t group) { return values_.data() + group * row_; }

 private:
  std::size_t row_;
  std::vector<float> values_;
};

/// Two sums for each element of a row.
struct Sums {
  explicit Sums(const Places& places) : first(places.row), second(places.row) {}

  void operator+=(const Sums& other) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      first[i] += other.first[i];
      second[i] += other.second[i];
    }
  }
  /// Adds the pixels of a row: the first `together` elements are the channels' sums.
  void fold(std::size_t together) {
    for (std::size_t i = together; i < first.size(); ++i) {
      first[i % together] += first[i];
      second[i % together] += second[i];
    }
  }

  std::vector<double> first, second;
};

/// Runs `sum(group, image, sums)` over all images of each group, then `prepare(group, sums)` and
/// `write(group, image)`.
template <typename Sum, typename Prepare, typename Write>
void in_two_passes(const Places& places, Sum sum, Prepare prepare, Write write) {
  constexpr std::size_t kPartsOfThread = 4;  // a thread that is delayed leaves some to others
  const auto threads = static_cast<std::size_t>(omp_get_max_threads());
  const std::size_t parts =
      places.groups >= threads || threads == 1
          ? 1
          : std::min(places.images, (kPartsOfThread * threads + places.groups - 1) / places.groups);
  const auto for_images = [&](std::size_t part, const auto& body) {
    const std::size_t last = places.images * (part + 1) / parts;
    for (std::size_t image = places.images * part / parts; image < last; ++image) body(image);
  };
  const auto sum_part = [&](std::size_t group, std::size_t part) {
    Sums sums(places);
    for_images(part, [&](std::size_t image) { sum(group, image, sums); });
    return sums;
  };
  const auto finish = [&](std::size_t group, Sums sums) {
    sums.fold(places.together);
    prepare(group, sums);
  };
  const auto write_part = [&](std::size_t group, std::size_t part) {
    for_images(part, [&](std::size_t image) { write(group, image); });
  };
  if (parts == 1) {
    parallel_for(places.groups, [&](std::size_t group) {
      finish(group, sum_part(group, 0));
      write_part(group, 0);
    });
    return;
  }
  std::vector<Sums> partial(places.groups * parts, Sums(places));
  parallel_for(partial.size(),
               [&](std::size_t task) { partial[task] = sum_part(task / parts, task % parts); });
  for (std::size_t group = 0; group < places.groups; ++group) {
    Sums sums = partial[group * parts];
    for (std::size_t part = 1; part < parts; ++part) sums += partial[group * parts + part];
    finish(group, std::move(sums));
  }
  parallel_for(partial.size(), [&](std::size_t task) { write_part(task / parts, task % parts); });
}

/// a and b of a x + b = scale * (x - mean) / sqrt(variance + epsilon) + shift.
struct Affine {
  explicit Affine(const Places& places) : a(places), b(places) {}

  void set(const Places& places, const BatchNormWeights& weights, std::size_t group,
           const float* mean, const float* variance) {
    for (std::size_t i = 0; i < places.row; ++i) {
      const std::size_t c = places.channel(group, i);
      a.of(group)[i] = weights.scale[c] / std::sqrt(variance[c] + weights.epsilon);
      b.of(group)[i] = weights.shift[c] - mean[c] * a.of(group)[i];
    }
  }

  RowValues a, b;
};

template <typename T, bool Residual>
void forward(const BatchNormShape& shape, const BatchNormWeights& weights, bool relu, const T* x,
             const T* residual, float* mean, float* variance, T* y) {
  const Places places(shape);
  const double count = static_cast<double>(shape.pixels) * shape.images;
  RowValues about(places);
  for (std::size_t group = 0; group < places.groups; ++group) {
    for (std::size_t i = 0; i < places.row; ++i) {
      about.of(group)[i] = load(x[places.at(group, 0) + i % places.together]);
    }
  }
  Affine affine(places);
  in_two_passes(
      places,
      [&](std::size_t group, std::size_t image, Sums& sums) {
        Moments<T> rows;
        rows.row = places.row;
        rows.x = x + places.at(group, image);
        rows.a = about.of(group);
        rows.first = sums.first.data();
        rows.second = sums.second.data();
        run_rows(rows, places.elements);
      },
      [&](std::size_t group, const Sums& sums) {
        for (std::size_t i = 0; i < places.together; ++i) {
          const std::size_t c = places.channel(group, i);
          const double shifted = sums.first[i] / count;
          mean[c] = static_cast<float>(shifted + about.of(group)[i]);
          variance[c] =
              static_cast<float>(std::max(0., sums.second[i] / count - shifted * shifted));
        }
        affine.set(places, weights, group, mean, variance);
      },
      [&](std::size_t group, std::size_t image) {
        const std::size_t at = places.at(group, image);
        Apply<Residual, T> rows;
        rows.row = places.row;
        rows.x = x + at;
        rows.other = Residual ? residual + at : nullptr;
        rows.out = y + at;
        rows.a = affine.a.of(group);
        rows.b = affine.b.of(group);
        rows.floor = relu ? 0.F : -std::numeric_limits<float>::infinity();
        run_rows(rows, places.elements);
      });
}

template <typename T, bool Relu>
void backward(const BatchNormShape& shape, const BatchNormWeights& weights, const T* x,
              const T* gradient_y, const float* mean, const float* variance, T* gradient_x,
              float* gradient_scale, float* gradient_shift) {
  const Places places(shape);
  const double count = static_cast<double>(shape.pixels) * shape.images;
  Affine affine(places);
  RowValues means(places), by_x(places), constant(places);
  for (std::size_t group = 0; group < places.groups; ++group) {
    affine.set(places, weights, group, mean, variance);
    for (std::size_t i = 0; i < places.row; ++i) {
      means.of(group)[i] = mean[places.channel(group, i)];
    }
  }
  const auto rows_at = [&]<typename Kind>(Kind rows, std::size_t group, std::size_t image) {
    rows.row = places.row;
    rows.x = x + places.at(group, image);
    rows.other = gradient_y + places.at(group, image);
    rows.a = affine.a.of(group);
    rows.b = affine.b.of(group);
    return rows;
  };
  in_two_passes(
      places,
      [&](std::size_t group, std::size_t image, Sums& sums) {
        auto rows = rows_at(GradientSums<Relu, T>(), group, image);
        rows.c = means.of(group);
        rows.first = sums.first.data();
        rows.second = sums.second.data();
        run_rows(rows, places.elements);
      },
      [&](std::size_t group, const Sums& sums) {
        for (std::size_t i = 0; i < places.row; ++i) {
          const std::size_t c = places.channel(group, i), sum = i % places.together;
          const float a = affine.a.of(group)[i];
          const double inverse = 1 / std::sqrt(double{variance[c]} + weights.epsilon);
          gradient_shift[c] = static_cast<float>(sums.first[sum]);
          gradient_scale[c] = static_cast<float>(sums.second[sum] * inverse);
          // With d = x - mean: a (g - mean of g - d inverse^2 mean of (g d)).
          const double factor = -a * inverse * inverse * sums.second[sum] / count;
          by_x.of(group)[i] = static_cast<float>(factor);
          constant.of(group)[i] =
              static_cast<float>(-a * sums.first[sum] / count - factor * mean[c]);
        }
      },
      [&](std::size_t group, std::size_t image) {
        auto rows = rows_at(Gradient<Relu, T>(), group, image);
        rows.out = gradient_x + places.at(group, image);
        rows.c = by_x.of(group);
        rows.d = constant.of(group);
        run_rows(rows, places.elements);
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
