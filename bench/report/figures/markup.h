// SPDX-License-Identifier: Apache-2.0
// Text that becomes part of a page or of a figure.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// `text` as character data or attribute value of HTML and of XML: markup is escaped; bytes that
/// are no UTF-8, and characters that XML 1.0 does not have, become U+FFFD.
std::string escaped(std::string_view text);

/// Characters, not bytes, of UTF-8 text.
std::size_t length_of(std::string_view text);

/// Width of `text` in a usual sans-serif typeface of `size` pixels, in pixels; rather too much than
/// too little, since nobody knows which typeface a reader has.
double text_width(std::string_view text, double size);

/// The longest beginning of `text` that is at most `width` pixels wide, with an ellipsis where
/// something is left out.
std::string shortened(std::string_view text, double width, double size);

}  // namespace penstock
