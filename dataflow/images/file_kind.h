// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace penstock {

/// Names the file format that begins with these bytes, for files that are named .JPEG: "it looks
/// like a PNG image".
std::string describe_first_bytes(std::span<const std::byte> bytes);

}  // namespace penstock
