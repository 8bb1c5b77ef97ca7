// SPDX-License-Identifier: Apache-2.0
// The arithmetic of each operator of trainer/graph.h in plain loops of double: the reference for
// backends. Every backward function adds to the gradients that it is given, so that a node with
// several readers collects all of them. If an input's gradient is empty, it is not computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/dropout.h"
#include "trainer/graph.h"

namespace penstock::plain {

/// Images in the order N, C, H, W.
struct Images {
  std::int32_t count = 0;
  ImageShape shape{};
  std::vector<double> values{};

  Images() = default;
  Images(std::int32_t images, const ImageShape& image)
      : count(images), shape(image), values(static_cast<std::size_t>(images) * image.elements()) {}
  /// The number of elements of one channel of one image.
  std::size_t plane() const {
    return static_cast<std::size_t>(shape.height) * static_cast<std::size_t>(shape.width);
  }
  double* channel(std::int32_t image, std::int32_t channel) {
    return values.data() + offset(image, channel);
  }
  const double* channel(std::int32_t image, std::int32_t channel) const {
    return values.data() + offset(image, channel);
  }

 private:
  std::size_t offset(std::int32_t image, std::int32_t channel) const {
    return (static_cast<std::size_t>(image) * static_cast<std::size_t>(shape.channels) +
            static_cast<std::size_t>(channel)) *
           plane();
  }
};

using Values = std::span<const double>;
using Gradient = std::span<double>;

/// `weight` is [O, I / groups, H, W]; `bias` is [O] or empty.
void forward(const Conv2d& op, const Images& x, Values weight, Values bias, Images& y);
void backward(const Conv2d& op, const Images& x, Values weight, const Images& dy, Images* dx,
              Gradient dweight, Gradient dbias);

/// `weight` is [O, C, H, W], `bias` is [O].
void forward(const Linear& op, const Images& x, Values weight, Values bias, Images& y);
void backward(const Linear& op, const Images& x, Values weight, const Images& dy, Images* dx,
              Gradient dweight, Gradient dbias);

/// The mean and the biased variance of one channel over N, H and W.
struct Moments {
  double mean = 0, variance = 0;
};
std::vector<Moments> moments_of(const Images& x);
/// Updates the running mean and variance of each channel once, with the unbiased variance. The
/// variance of a single element counts as 0.
void update_running(const BatchNorm& op, const Images& x, std::span<const Moments> moments,
                    std::span<double> mean, std::span<double> variance);
void forward(const BatchNorm& op, const Images& x, std::span<const Moments> moments, Values scale,
             Values shift, Images& y);
/// `moments` belong to x, so that gradients flow through them, too.
void backward(const BatchNorm& op, const Images& x, std::span<const Moments> moments, Values scale,
              const Images& dy, Images* dx, Gradient dscale, Gradient dshift);

/// The gradient at 0 is 0.
void forward(const Relu& op, const Images& x, Images& y);
void backward(const Relu& op, const Images& x, const Images& dy, Images* dx);

/// Each window overlaps the image. Of equal elements the first in the order H, W gets the gradient.
void forward(const MaxPool& op, const Images& x, Images& y);
void backward(const MaxPool& op, const Images& x, const Images& dy, Images* dx);

/// Each window overlaps the image.
void forward(const AvgPool& op, const Images& x, Images& y);
void backward(const AvgPool& op, const Images& x, const Images& dy, Images* dx);

void forward(const GlobalAvgPool& op, const Images& x, Images& y);
void backward(const GlobalAvgPool& op, const Images& x, const Images& dy, Images* dx);

void forward(const Lrn& op, const Images& x, Images& y);
void backward(const Lrn& op, const Images& x, const Images& dy, Images* dx);

void forward(const Dropout& op, const DropoutMask& mask, const Images& x, Images& y);
void backward(const Dropout& op, const DropoutMask& mask, const Images& dy, Images* dx);

/// Adds the channels of `from` from `from_first` on to those of `to` from `to_first` on, as many as
/// both have.
void add_channels(const Images& from, std::int32_t from_first, Images& to, std::int32_t to_first);

}  // namespace penstock::plain
