// SPDX-License-Identifier: Apache-2.0
// Reads job files: TOML files, named by `--config FILE`, that hold the flags of a command. A line
// is `batch-size = 64`, in kebab or snake case; an array is a list: `batch-size = [32, 64]`. Lines
// before the first [section] apply to every verb; lines in [sweep] apply to `penstock sweep`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class JobFile {
 public:
  using IsVerb = std::function<bool(std::string_view name)>;

  /// Replaces `--config FILE` in `arguments`, before a "--", by the flags in the file. If a flag is
  /// also typed, the typed value holds. Throws ConfigError if the file cannot be read or a section
  /// is not the name of a verb.
  JobFile(std::string_view verb, const IsVerb& is_verb, std::vector<std::string>& arguments);

  /// "; --batch-size is set in sweep.toml, line 3" if `message` names a flag of the file, else "".
  std::string place_of(std::string_view message) const;

 private:
  struct Line {
    std::string flag;  ///< "--batch-size"
    int number = 0;
  };
  std::vector<std::string> read(std::string_view verb, const IsVerb& is_verb);

  std::string path_;
  std::vector<Line> lines_;
};

}  // namespace penstock
