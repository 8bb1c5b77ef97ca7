// SPDX-License-Identifier: Apache-2.0
// From headers that libjpeg has read to what the decoder of baseline images wants to know.
#pragma once

#include "dataflow/jpeg/baseline.h"

struct jpeg_decompress_struct;

namespace penstock {

/// Describes the image whose headers jpeg_read_header() has read from memory, which the frame then
/// points to. False if it is of another kind than those of BaselineDecoder.
bool read_frame(const jpeg_decompress_struct& headers, jpeg::Frame& frame);

}  // namespace penstock
