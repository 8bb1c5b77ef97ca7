// SPDX-License-Identifier: Apache-2.0
#include "dataflow/packed/column_choice.h"

#include <algorithm>
#include <vector>

#include "dataflow/error.h"

namespace penstock {
namespace {

[[noreturn]] void refuse(const std::string& problem, std::span<const ColumnOffer> columns,
                         const ColumnWish& wish) {
  std::string list;
  for (const ColumnOffer& column : columns) {
    list += (list.empty() ? "'" : ", '") + column.name + "' (" + column.type + ")";
  }
  throw DataError(problem + "; there " + (list.empty() ? "is none" : "are " + list) +
                  "; name one that holds " + std::string(wish.what) + " with " +
                  std::string(wish.option) + "=NAME");
}

}  // namespace

std::size_t choose_column(std::span<const ColumnOffer> columns, const ColumnWish& wish) {
  const std::string what(wish.what);
  std::vector<std::size_t> fitting, usual;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const ColumnOffer& column = columns[i];
    if (!wish.name.empty() && column.name == wish.name) {
      if (column.fits) return i;
      refuse("has no " + what + " in column '" + column.name + "'", columns, wish);
    }
    if (!column.fits) continue;
    fitting.push_back(i);
    if (std::ranges::find(wish.usual, column.name) != wish.usual.end()) usual.push_back(i);
  }
  if (!wish.name.empty()) {
    refuse("has no column '" + std::string(wish.name) + "'", columns, wish);
  }
  if (fitting.size() == 1) return fitting.front();
  if (usual.size() == 1) return usual.front();
  refuse(fitting.empty() ? "has no column of " + what
                         : "has " + std::to_string(fitting.size()) + " columns of " + what,
         columns, wish);
}

}  // namespace penstock
