// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace penstock {

/// What kind of file begins with these bytes, as far as files named .JPEG go: "it looks like a PNG
/// image".
std::string describe_first_bytes(std::span<const std::byte> bytes);

}  // namespace penstock
