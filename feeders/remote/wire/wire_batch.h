// SPDX-License-Identifier: Apache-2.0
// A batch as a message holds it, whatever the message's format: views of its bytes. Stateless: all
// functions may run on any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/wire/numpy_array.h"

namespace penstock {

/// A message's frames: views of its bytes, in their order.
using MessageFrames = std::span<const std::span<const std::byte>>;

/// Of the run's shape: valid while the message's bytes are.
struct WireBatch {
  std::span<const std::byte> pixels;  ///< [N,H,W,C] u8
  std::span<const std::byte> labels;  ///< [N]; not aligned
  NumpyType label_type{.kind = 'i', .bytes = 4};
};

/// Throws DataError, which begins with `message`, where labels are no whole numbers of the run's
/// classes. There is one for each image.
void check_labels(const WireBatch& batch, const BatchSpec& spec, std::string_view message);

/// Copies a checked batch into a slot of the same spec.
void copy_batch(const WireBatch& from, const Batch& to);
/// The same of its labels alone.
void copy_labels(const WireBatch& from, const Batch& to);

}  // namespace penstock
