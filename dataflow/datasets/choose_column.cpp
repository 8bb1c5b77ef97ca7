// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/choose_column.h"

#include <fmt/format.h>

#include <algorithm>

#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

[[noreturn]] void refuse(const std::string& problem, std::span<const ColumnOffer> columns,
                         const ColumnArguments& arguments) {
  std::string list;
  for (const ColumnOffer& column : columns) {
    list += fmt::format("{}{}' ({})", list.empty() ? "'" : ", '", column.name, column.type);
  }
  throw DataError("{}; there {}; name one that holds {} with {}=NAME", problem,
                  list.empty() ? "is none" : "are " + list, arguments.what, arguments.option);
}

}  // namespace

std::size_t choose_column(std::span<const ColumnOffer> columns, const ColumnArguments& arguments) {
  const std::string what(arguments.what);
  std::vector<std::size_t> fitting, usual;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const ColumnOffer& column = columns[i];
    if (!arguments.name.empty() && column.name == arguments.name) {
      if (column.fits) return i;
      refuse(fmt::format("has no {} in column '{}'", what, column.name), columns, arguments);
    }
    if (!column.fits) continue;
    fitting.push_back(i);
    if (std::ranges::find(arguments.usual, column.name) != arguments.usual.end())
      usual.push_back(i);
  }
  if (!arguments.name.empty()) {
    refuse(fmt::format("has no column '{}'", arguments.name), columns, arguments);
  }
  if (fitting.size() == 1) return fitting.front();
  if (usual.size() == 1) return usual.front();
  refuse(fitting.empty() ? "has no column of " + what
                         : fmt::format("has {} columns of {}", fitting.size(), what),
         columns, arguments);
}

}  // namespace penstock::datasets
