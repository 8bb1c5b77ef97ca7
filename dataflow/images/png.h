// SPDX-License-Identifier: Apache-2.0
// PNG images, which some data sets of JPEG images hold too: ImageNet has one, named .JPEG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataflow/images/crop.h"

namespace penstock::png {

/// The size that the header states. Empty: these bytes do not begin a PNG image.
std::optional<ImageSize> size_of(std::span<const std::byte> bytes) noexcept;

/// Decodes the whole image into rows of 4 * width bytes: red, green, blue, and a byte of any value.
/// As with PIL, transparency is dropped, and channels of 16 bits keep their upper byte. Throws
/// DataError with the reason alone.
void decode(std::span<const std::byte> bytes, std::uint8_t* rgbx);

}  // namespace penstock::png
