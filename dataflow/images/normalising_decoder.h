// SPDX-License-Identifier: Apache-2.0
// Rows of normalised f32 or f16 from a decoder that writes bytes.
#pragma once

#include <memory>

#include "dataflow/decoder.h"

namespace penstock {

/// A decoder for rows without gaps whose type is f32 or f16: `decoder` writes the bytes of an image
/// into memory that is used again, and dataflow/normalisation.h makes the row of them.
std::unique_ptr<Decoder> make_normalising_decoder(std::unique_ptr<Decoder> decoder);

}  // namespace penstock
