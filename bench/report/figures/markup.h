// SPDX-License-Identifier: Apache-2.0
// Prepares text for pages and figures: escapes it and estimates its width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock::report {

/// `text` as character data or attribute value of HTML and XML. Markup is escaped. Bytes that are
/// not UTF-8, and characters not allowed in XML 1.0, become U+FFFD.
std::string escaped(std::string_view text);

/// Number of characters, not bytes, in UTF-8 text.
std::size_t length_of(std::string_view text);

/// Width of `text` in pixels, in a usual sans-serif typeface of `size` pixels. Rather too large
/// than too small, because the reader's typeface is unknown.
double text_width(std::string_view text, double size);

/// The longest beginning of `text` that is at most `width` pixels wide, with an ellipsis if it is
/// cut.
std::string shortened(std::string_view text, double width, double size);

}  // namespace penstock::report
