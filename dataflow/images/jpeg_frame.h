// SPDX-License-Identifier: Apache-2.0
// Converts headers that libjpeg has read to the form that the baseline decoder needs.
#pragma once

#include "dataflow/images/jpeg/baseline.h"

struct jpeg_decompress_struct;

namespace penstock {

/// Describes the image whose headers jpeg_read_header() has read from memory. The frame points into
/// that memory. False if BaselineDecoder does not support this kind of image.
bool read_frame(const jpeg_decompress_struct& headers, jpeg::Frame& frame);

}  // namespace penstock
