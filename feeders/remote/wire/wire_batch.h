// SPDX-License-Identifier: Apache-2.0
// A batch in a message of any format: views of its bytes. Stateless: any thread may call any
// function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/error.h"
#include "dataflow/values/numpy_array.h"

namespace penstock::remote {

/// The frames of a message: views of its bytes, in order.
using MessageFrames = std::span<const std::span<const std::byte>>;

/// The pixels of a whole message are of another type or shape than the run's: its producer can send
/// nothing that fits.
class MisfitError : public DataError {
 public:
  using DataError::DataError;
};

/// Throws MisfitError: `text`, and which flags of the run would take pixels of this type and shape.
[[noreturn]] void refuse_pixels(std::string text, std::optional<DType> type,
                                std::span<const std::int64_t> shape, const BatchSpec& spec);

/// A batch with the run's shape, or arrays of at most its bytes. Valid while the message's bytes
/// are.
struct WireBatch {
  std::span<const std::byte> pixels;  ///< of the run's type and layout; or the arrays' bytes
  std::span<const std::byte> labels;  ///< [N]; not aligned
  values::NumpyType label_type{.kind = 'i', .bytes = 4};
  std::int32_t samples = 0;  ///< of a batch of arrays; 0: images, as many as the run's batches have
};

/// Throws DataError, which begins with `message`, if a label is not the whole number of a class of
/// the run. Expects one label per image.
void check_labels(const WireBatch& batch, const BatchSpec& spec, std::string_view message);

/// Copies a checked batch into a slot of the same spec. States the samples and bytes of arrays.
void copy_batch(const WireBatch& from, Batch& to);
/// Copies only the labels. Those of arrays are 0.
void copy_labels(const WireBatch& from, Batch& to);

}  // namespace penstock::remote
