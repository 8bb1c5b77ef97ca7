// SPDX-License-Identifier: Apache-2.0
// Job files: the flags of a command in a TOML file, as `--config FILE` names it. A line is
// `batch-size = 64`, in kebab or snake case; an array is a list: `batch-size = [32, 64]`. Lines
// before the first [section] hold for every verb, those of [sweep] for `penstock sweep`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class JobFile {
 public:
  /// Replaces `--config FILE` in `arguments`, before a "--", by the flags in the file. A flag that
  /// is typed as well keeps its typed value. Throws ConfigError for a file that cannot be read and
  /// for a section that is no verb.
  JobFile(std::string_view verb, std::vector<std::string>& arguments);

  /// "; --batch-size is set in sweep.toml, line 3" if `message` names a flag of the file, else "".
  std::string place_of(std::string_view message) const;

 private:
  struct Line {
    std::string flag;  ///< "--batch-size"
    int number = 0;
  };
  std::vector<std::string> read(std::string_view verb);

  std::string path_;
  std::vector<Line> lines_;
};

}  // namespace penstock
