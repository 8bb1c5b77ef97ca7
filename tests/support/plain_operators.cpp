// SPDX-License-Identifier: Apache-2.0
#include "tests/support/plain_operators.h"

#include <algorithm>
#include <cmath>

#include "dataflow/error.h"

namespace penstock::plain {
namespace {

std::size_t index_of(std::int32_t value) { return static_cast<std::size_t>(value); }

/// Outputs [first, last) whose tap is inside the image: 0 <= o * stride + offset < in.
struct Range {
  std::int32_t first, last;
};
Range inside(std::int32_t offset, std::int32_t stride, std::int32_t in, std::int32_t out) {
  const std::int32_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const std::int32_t last = in - offset > 0 ? (in - offset - 1) / stride + 1 : 0;
  return {first, std::max(first, std::min(last, out))};
}

/// Calls row(output, input, count) for each row of outputs whose input under tap (i, j) of the
/// window is inside the image. The `count` outputs are adjacent; their inputs are one stride apart.
template <typename Row>
void for_each_row(const Window& window, const ImageShape& in, const ImageShape& out, std::int32_t i,
                  std::int32_t j, const Row& row) {
  const Range rows = inside(i - window.top, window.stride, in.height, out.height);
  const Range columns = inside(j - window.left, window.stride, in.width, out.width);
  for (std::int32_t y = rows.first; y < rows.last; ++y) {
    const std::int32_t in_row = y * window.stride + i - window.top;
    const std::int32_t in_column = columns.first * window.stride + j - window.left;
    row(index_of(y * out.width + columns.first), index_of(in_row * in.width + in_column),
        index_of(columns.last - columns.first));
  }
}

/// Calls visit(n, c) for each channel of each image.
template <typename Visit>
void for_each_channel(const Images& x, const Visit& visit) {
  for (std::int32_t n = 0; n < x.count; ++n) {
    for (std::int32_t c = 0; c < x.shape.channels; ++c) visit(n, c);
  }
}

/// Calls tap(n, o, c, input channel, weight's index, i, j) for every weight and image.
template <typename Tap>
void for_each_tap(const Conv2d& op, const Images& x, const Tap& tap) {
  const std::int32_t group_in = x.shape.channels / op.groups;
  const std::int32_t group_out = op.channels / op.groups;
  for (std::int32_t n = 0; n < x.count; ++n) {
    std::size_t weight = 0;
    for (std::int32_t o = 0; o < op.channels; ++o) {
      for (std::int32_t c = 0; c < group_in; ++c) {
        const std::int32_t channel = o / group_out * group_in + c;
        for (std::int32_t i = 0; i < op.window.kernel_h; ++i) {
          for (std::int32_t j = 0; j < op.window.kernel_w; ++j) tap(n, o, channel, weight++, i, j);
        }
      }
    }
  }
}

/// Calls window(n, c, output, elements) with the elements of the channel that each window contains.
template <typename Visit>
void for_each_window(const Window& window, const Images& x, const ImageShape& out,
                     const Visit& visit) {
  std::vector<std::size_t> elements;
  for (std::int32_t y = 0; y < out.height; ++y) {
    for (std::int32_t column = 0; column < out.width; ++column) {
      elements.clear();
      for (std::int32_t i = 0; i < window.kernel_h; ++i) {
        for (std::int32_t j = 0; j < window.kernel_w; ++j) {
          const std::int32_t h = y * window.stride + i - window.top;
          const std::int32_t w = column * window.stride + j - window.left;
          if (h >= 0 && h < x.shape.height && w >= 0 && w < x.shape.width) {
            elements.push_back(index_of(h * x.shape.width + w));
          }
        }
      }
      PENSTOCK_ASSERT(!elements.empty());
      for_each_channel(
          x, [&](auto n, auto c) { visit(n, c, index_of(y * out.width + column), elements); });
    }
  }
}

/// The first of the largest elements.
std::size_t winner(const double* channel, const std::vector<std::size_t>& elements) {
  return *std::max_element(elements.begin(), elements.end(),
                           [&](std::size_t a, std::size_t b) { return channel[a] < channel[b]; });
}

double divisor(const AvgPool& op, const std::vector<std::size_t>& elements) {
  return op.count_padding ? op.window.kernel_h * op.window.kernel_w
                          : static_cast<double>(elements.size());
}

/// Calls neighbour(j) for each channel within half a size of c.
template <typename Visit>
void for_each_neighbour(const Lrn& op, std::int32_t c, std::int32_t channels, const Visit& visit) {
  const std::int32_t half = op.size / 2;
  for (std::int32_t j = std::max(0, c - half); j <= std::min(channels - 1, c + half); ++j) visit(j);
}

/// k + alpha / size * the sum of squares around (n, c).
double denominator(const Lrn& op, const Images& x, std::int32_t n, std::int32_t c, std::size_t k) {
  double squares = 0;
  for_each_neighbour(op, c, x.shape.channels,
                     [&](std::int32_t j) { squares += x.channel(n, j)[k] * x.channel(n, j)[k]; });
  return op.k + double{op.alpha} / op.size * squares;
}

}  // namespace

void forward(const Conv2d& op, const Images& x, Values weight, Values bias, Images& y) {
  for_each_channel(y, [&](auto n, auto o) {
    if (!bias.empty()) std::fill_n(y.channel(n, o), y.plane(), bias[index_of(o)]);
  });
  for_each_tap(op, x, [&](auto n, auto o, auto c, std::size_t w, auto i, auto j) {
    const double value = weight[w];
    const double* const from = x.channel(n, c);
    double* const to = y.channel(n, o);
    const std::size_t stride = index_of(op.window.stride);
    for_each_row(op.window, x.shape, y.shape, i, j, [&](auto out, auto in, std::size_t count) {
      for (std::size_t k = 0; k < count; ++k) to[out + k] += value * from[in + k * stride];
    });
  });
}

void backward(const Conv2d& op, const Images& x, Values weight, const Images& dy, Images* dx,
              Gradient dweight, Gradient dbias) {
  const std::size_t stride = index_of(op.window.stride);
  for_each_tap(op, x, [&](auto n, auto o, auto c, std::size_t w, auto i, auto j) {
    const double value = weight[w];
    const double* const above = dy.channel(n, o);
    const double* const from = x.channel(n, c);
    double* const below = dx == nullptr ? nullptr : dx->channel(n, c);
    double sum = 0;
    for_each_row(op.window, x.shape, dy.shape, i, j, [&](auto out, auto in, std::size_t count) {
      for (std::size_t k = 0; k < count; ++k) sum += above[out + k] * from[in + k * stride];
      if (below == nullptr) return;
      for (std::size_t k = 0; k < count; ++k) below[in + k * stride] += value * above[out + k];
    });
    dweight[w] += sum;
  });
  if (dbias.empty()) return;
  for_each_channel(dy, [&](auto n, auto o) {
    const double* const above = dy.channel(n, o);
    for (std::size_t k = 0; k < dy.plane(); ++k) dbias[index_of(o)] += above[k];
  });
}

void forward(const Linear& op, const Images& x, Values weight, Values bias, Images& y) {
  const std::size_t inputs = x.shape.elements();
  for (std::int32_t n = 0; n < x.count; ++n) {
    const double* const from = x.channel(n, 0);
    for (std::int32_t o = 0; o < op.features; ++o) {
      const double* const row = weight.data() + index_of(o) * inputs;
      double sum = bias[index_of(o)];
      for (std::size_t k = 0; k < inputs; ++k) sum += row[k] * from[k];
      *y.channel(n, o) = sum;
    }
  }
}

void backward(const Linear& op, const Images& x, Values weight, const Images& dy, Images* dx,
              Gradient dweight, Gradient dbias) {
  const std::size_t inputs = x.shape.elements();
  for (std::int32_t n = 0; n < x.count; ++n) {
    const double* const from = x.channel(n, 0);
    for (std::int32_t o = 0; o < op.features; ++o) {
      const double above = *dy.channel(n, o);
      const double* const row = weight.data() + index_of(o) * inputs;
      double* const drow = dweight.data() + index_of(o) * inputs;
      for (std::size_t k = 0; k < inputs; ++k) drow[k] += above * from[k];
      dbias[index_of(o)] += above;
      if (dx == nullptr) continue;
      double* const below = dx->channel(n, 0);
      for (std::size_t k = 0; k < inputs; ++k) below[k] += above * row[k];
    }
  }
}

std::vector<Moments> moments_of(const Images& x) {
  std::vector<Moments> result(index_of(x.shape.channels));
  const double elements = static_cast<double>(x.count) * static_cast<double>(x.plane());
  for (std::int32_t c = 0; c < x.shape.channels; ++c) {
    Moments& moments = result[index_of(c)];
    for (std::int32_t n = 0; n < x.count; ++n) {
      for (std::size_t k = 0; k < x.plane(); ++k) moments.mean += x.channel(n, c)[k] / elements;
    }
    for (std::int32_t n = 0; n < x.count; ++n) {
      for (std::size_t k = 0; k < x.plane(); ++k) {
        const double centred = x.channel(n, c)[k] - moments.mean;
        moments.variance += centred * centred / elements;
      }
    }
  }
  return result;
}

void update_running(const BatchNorm& op, const Images& x, std::span<const Moments> moments,
                    std::span<double> mean, std::span<double> variance) {
  const double elements = static_cast<double>(x.count) * static_cast<double>(x.plane());
  const double momentum = op.momentum;
  for (std::size_t c = 0; c < moments.size(); ++c) {
    const double unbiased = moments[c].variance * elements / std::max(1., elements - 1);
    mean[c] = (1 - momentum) * mean[c] + momentum * moments[c].mean;
    variance[c] = (1 - momentum) * variance[c] + momentum * unbiased;
  }
}

void forward(const BatchNorm& op, const Images& x, std::span<const Moments> moments, Values scale,
             Values shift, Images& y) {
  for_each_channel(x, [&](auto n, auto c) {
    const Moments& of = moments[index_of(c)];
    const double factor = scale[index_of(c)] / std::sqrt(of.variance + op.epsilon);
    const double* const from = x.channel(n, c);
    double* const to = y.channel(n, c);
    for (std::size_t k = 0; k < x.plane(); ++k) {
      to[k] = (from[k] - of.mean) * factor + shift[index_of(c)];
    }
  });
}

void backward(const BatchNorm& op, const Images& x, std::span<const Moments> moments, Values scale,
              const Images& dy, Images* dx, Gradient dscale, Gradient dshift) {
  const double elements = static_cast<double>(x.count) * static_cast<double>(x.plane());
  for (std::int32_t c = 0; c < x.shape.channels; ++c) {
    const Moments& of = moments[index_of(c)];
    const double inverse = 1 / std::sqrt(of.variance + op.epsilon);
    double sum = 0, sum_of_products = 0;  // of dy, and of dy times the normalised x
    for (std::int32_t n = 0; n < x.count; ++n) {
      for (std::size_t k = 0; k < x.plane(); ++k) {
        sum += dy.channel(n, c)[k];
        sum_of_products += dy.channel(n, c)[k] * (x.channel(n, c)[k] - of.mean) * inverse;
      }
    }
    dshift[index_of(c)] += sum;
    dscale[index_of(c)] += sum_of_products;
    if (dx == nullptr) continue;
    for (std::int32_t n = 0; n < x.count; ++n) {
      for (std::size_t k = 0; k < x.plane(); ++k) {
        const double normalised = (x.channel(n, c)[k] - of.mean) * inverse;
        dx->channel(n, c)[k] +=
            scale[index_of(c)] * inverse *
            (dy.channel(n, c)[k] - sum / elements - normalised * sum_of_products / elements);
      }
    }
  }
}

void forward(const Relu&, const Images& x, Images& y) {
  for (std::size_t k = 0; k < x.values.size(); ++k) y.values[k] = std::max(0., x.values[k]);
}

void backward(const Relu&, const Images& x, const Images& dy, Images* dx) {
  if (dx == nullptr) return;
  for (std::size_t k = 0; k < x.values.size(); ++k) {
    if (x.values[k] > 0) dx->values[k] += dy.values[k];
  }
}

void forward(const MaxPool& op, const Images& x, Images& y) {
  for_each_window(op.window, x, y.shape, [&](auto n, auto c, std::size_t out, const auto& in) {
    y.channel(n, c)[out] = x.channel(n, c)[winner(x.channel(n, c), in)];
  });
}

void backward(const MaxPool& op, const Images& x, const Images& dy, Images* dx) {
  if (dx == nullptr) return;
  for_each_window(op.window, x, dy.shape, [&](auto n, auto c, std::size_t out, const auto& in) {
    dx->channel(n, c)[winner(x.channel(n, c), in)] += dy.channel(n, c)[out];
  });
}

void forward(const AvgPool& op, const Images& x, Images& y) {
  for_each_window(op.window, x, y.shape, [&](auto n, auto c, std::size_t out, const auto& in) {
    for (const std::size_t k : in) y.channel(n, c)[out] += x.channel(n, c)[k] / divisor(op, in);
  });
}

void backward(const AvgPool& op, const Images& x, const Images& dy, Images* dx) {
  if (dx == nullptr) return;
  for_each_window(op.window, x, dy.shape, [&](auto n, auto c, std::size_t out, const auto& in) {
    for (const std::size_t k : in) dx->channel(n, c)[k] += dy.channel(n, c)[out] / divisor(op, in);
  });
}

void forward(const GlobalAvgPool&, const Images& x, Images& y) {
  for_each_channel(x, [&](auto n, auto c) {
    double sum = 0;
    for (std::size_t k = 0; k < x.plane(); ++k) sum += x.channel(n, c)[k];
    *y.channel(n, c) = sum / static_cast<double>(x.plane());
  });
}

void backward(const GlobalAvgPool&, const Images& x, const Images& dy, Images* dx) {
  if (dx == nullptr) return;
  for_each_channel(x, [&](auto n, auto c) {
    const double share = *dy.channel(n, c) / static_cast<double>(x.plane());
    for (std::size_t k = 0; k < x.plane(); ++k) dx->channel(n, c)[k] += share;
  });
}

void forward(const Lrn& op, const Images& x, Images& y) {
  for_each_channel(x, [&](auto n, auto c) {
    for (std::size_t k = 0; k < x.plane(); ++k) {
      y.channel(n, c)[k] =
          x.channel(n, c)[k] * std::pow(denominator(op, x, n, c, k), -double{op.beta});
    }
  });
}

void backward(const Lrn& op, const Images& x, const Images& dy, Images* dx) {
  if (dx == nullptr) return;
  const double beta = op.beta, slope = 2 * double{op.alpha} / op.size * beta;
  for_each_channel(x, [&](auto n, auto c) {
    for (std::size_t k = 0; k < x.plane(); ++k) {
      const double below = denominator(op, x, n, c, k), above = dy.channel(n, c)[k];
      dx->channel(n, c)[k] += above * std::pow(below, -beta);
      // x of this channel is in the denominators of its neighbours.
      const double passed = slope * above * x.channel(n, c)[k] * std::pow(below, -beta - 1);
      for_each_neighbour(op, c, x.shape.channels, [&](std::int32_t j) {
        dx->channel(n, j)[k] -= passed * x.channel(n, j)[k];
      });
    }
  });
}

void forward(const Dropout& op, const DropoutMask& mask, const Images& x, Images& y) {
  for (std::size_t k = 0; k < x.values.size(); ++k) {
    y.values[k] = mask.keeps(k) ? x.values[k] / (1 - double{op.rate}) : 0;
  }
}

void backward(const Dropout& op, const DropoutMask& mask, const Images& dy, Images* dx) {
  if (dx == nullptr) return;
  for (std::size_t k = 0; k < dy.values.size(); ++k) {
    if (mask.keeps(k)) dx->values[k] += dy.values[k] / (1 - double{op.rate});
  }
}

void add_channels(const Images& from, std::int32_t from_first, Images& to, std::int32_t to_first) {
  const std::int32_t channels =
      std::min(from.shape.channels - from_first, to.shape.channels - to_first);
  for (std::int32_t n = 0; n < to.count; ++n) {
    for (std::int32_t c = 0; c < channels; ++c) {
      const double* const added = from.channel(n, from_first + c);
      double* const sum = to.channel(n, to_first + c);
      for (std::size_t k = 0; k < to.plane(); ++k) sum[k] += added[k];
    }
  }
}

}  // namespace penstock::plain
