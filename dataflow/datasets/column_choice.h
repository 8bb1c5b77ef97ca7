// SPDX-License-Identifier: Apache-2.0
// Which column of a packed data set holds images, and which labels.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

struct ColumnOffer {
  std::string name, type;
  bool fits = false;  ///< its type is one that can be read
};

/// What a column is wanted for.
struct ColumnWish {
  std::string_view name;                    ///< as typed; empty: whichever fits
  std::string_view what;                    ///< "JPEG images", for messages
  std::string_view option;                  ///< "beton:image", for messages
  std::span<const std::string_view> usual;  ///< names that decide between several
};

inline constexpr std::string_view kUsualImages[] = {"image", "img", "jpg", "jpeg", "x"};
inline constexpr std::string_view kUsualLabels[] = {"label", "labels", "class",
                                                    "cls",   "target", "y"};

/// The place in `columns` of the one of that name, else of the only one that fits, else of the only
/// one that fits and has a usual name. Throws DataError, with what there is, where that leaves
/// none: "has no column of JPEG images; ...".
std::size_t choose_column(std::span<const ColumnOffer> columns, const ColumnWish& wish);

}  // namespace penstock
