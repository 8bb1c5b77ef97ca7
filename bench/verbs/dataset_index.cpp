// SPDX-License-Identifier: Apache-2.0
// penstock dataset index: saves an image folder's list of files for later runs.
#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "bench/verbs/dataset_words.h"
#include "dataflow/datasets/manifest.h"

namespace penstock {

int index_word(const Invocation& invocation) {
  std::string directory = "data/train", out;
  const Flag flags[] = {word_flag("data-dir", "folder of class folders", directory),
                        word_flag("out",
                                  "file to write, for queue:source='image-folder:manifest=FILE'; "
                                  "default: .penstock-manifest in the folder, which runs find",
                                  out)};
  if (!parse_flags({.verb = "dataset index",
                    .summary = "Saves the list of files of an image folder. Runs read it instead "
                               "of listing the folder, until a class folder changes.",
                    .examples = "dataset index --data-dir my/images"},
                   flags, invocation.arguments)) {
    return 0;
  }
  if (out.empty()) out = datasets::default_manifest(directory);
  const auto began = std::chrono::steady_clock::now();
  const std::optional<datasets::WrittenManifest> written =
      datasets::write_manifest(directory, out, invocation.stop);
  if (!written) {
    fmt::print(stderr, "penstock: stopped; nothing was written\n");
    return 130;
  }
  fmt::print(
      "{}: {} files of {} classes, {:.1f} MB, {:.1f} bytes a file; listing and writing took {:.2f} "
      "s\n",
      out, written->files, written->classes, 1e-6 * static_cast<double>(written->bytes),
      static_cast<double>(written->bytes) / static_cast<double>(written->files),
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return 0;
}

}  // namespace penstock
