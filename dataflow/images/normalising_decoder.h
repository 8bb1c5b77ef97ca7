// SPDX-License-Identifier: Apache-2.0
// Makes rows of normalised f32 or f16 with a decoder that writes bytes.
#pragma once

#include <memory>

#include "dataflow/decoder.h"

namespace penstock {

/// A decoder for rows without gaps whose type is f32 or f16. `decoder` writes the image's bytes
/// into a reused buffer, and dataflow/images/normalisation.h converts them into the row.
std::unique_ptr<Decoder> make_normalising_decoder(std::unique_ptr<Decoder> decoder);

}  // namespace penstock
