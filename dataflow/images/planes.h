// SPDX-License-Identifier: Apache-2.0
// Batches in the layout NCHW: each image is one plane of pixels per channel.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dataflow/batch.h"
#include "dataflow/decoder.h"

namespace penstock {

/// Copies images from [H,W,C] to [C,H,W]. An element has `element` bytes: 1, 2 or 4.
void split_planes(std::span<const std::byte> images, const ImageShape& shape, std::size_t element,
                  std::byte* to);

/// A decoder for rows in [C,H,W]. `decoder` writes [H,W,C] into a reused buffer.
std::unique_ptr<Decoder> make_planar_decoder(std::unique_ptr<Decoder> decoder);

}  // namespace penstock
