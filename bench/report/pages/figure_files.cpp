// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/figure_files.h"

#include <system_error>

#include "bench/sweep/result_folder.h"
#include "dataflow/machine/output_file.h"

namespace penstock::report {

void write_figure_files(const std::vector<PageFigure>& figures,
                        const std::filesystem::path& folder) {
  const ResultFolder made(folder);
  for (const PageFigure& figure : figures) {
    const std::filesystem::path path = made.path() / figure.file;
    if (figure.draw) {
      replace_file(path, figure.draw({.width = 720, .standalone = true}));
    } else {
      std::error_code nothing_to_remove;
      std::filesystem::remove(path, nothing_to_remove);
    }
  }
}

}  // namespace penstock::report
