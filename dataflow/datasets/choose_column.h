// SPDX-License-Identifier: Apache-2.0
// Chooses the columns of a packed data set that hold the images and the labels.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/options.h"

namespace penstock::datasets {

struct ColumnOffer {
  std::string name, type;
  bool fits = false;  ///< its type can be read
};

/// The column that is looked for.
struct ColumnArguments {
  std::string_view name;                    ///< as typed; empty: any column that fits
  std::string_view what;                    ///< "JPEG images", for messages
  std::string_view option;                  ///< "beton:image", for messages
  std::span<const std::string_view> usual;  ///< names that decide if several columns fit
};

inline constexpr std::string_view kUsualImages[] = {"image", "img", "jpg", "jpeg", "x"};
inline constexpr std::string_view kUsualLabels[] = {"label", "labels", "class",
                                                    "cls",   "target", "y"};

/// The index in `columns` of the column with that name. Without a name: the only one that fits, or
/// else the only one that fits and has a usual name. Throws DataError that lists the columns if
/// there is none: "has no column of JPEG images; ...".
std::size_t choose_column(std::span<const ColumnOffer> columns, const ColumnArguments& arguments);

/// The array of a file that choose_column() finds among those that fit. `key`: "hdf5:image".
template <typename Arrays, typename Fits>
const auto& choose_array(const Arrays& arrays, const Options& options, std::string_view key,
                         Fits fits, std::span<const std::string_view> usual) {
  std::vector<ColumnOffer> offers;
  for (const auto& each : arrays) offers.push_back({each.name, each.type, fits(each.array)});
  const std::string_view option = key.substr(key.find(':') + 1);
  return arrays[choose_column(offers, {options.text(option), option, key, usual})];
}

}  // namespace penstock::datasets
