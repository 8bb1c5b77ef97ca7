// SPDX-License-Identifier: Apache-2.0
// THE way to write a file that the user named. Its content appears as a whole, and nothing but a
// regular file is ever replaced.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// The file that an output path stands for: the end of its symbolic links.
struct OutputTarget {
  std::filesystem::path path;
  bool is_device = false;  ///< a character device, such as /dev/null or a terminal
};

/// Throws DataError, as OutputFile does, if `path` names a FIFO, a socket, a block device or a
/// folder. Opens nothing and waits for nothing.
OutputTarget find_output(const std::filesystem::path& path);

/// An output file while it is written. A new file beside the target takes the target's place in
/// commit(): readers see the old content or the new one, and without commit() the target keeps what
/// it had. Symbolic links stay. A character device is written to directly. What killed processes
/// left unfinished in the folder is removed.
class OutputFile {
 public:
  /// `advice` ends the message of what all members throw: DataError with the path and the reason.
  explicit OutputFile(const std::filesystem::path& path, std::string advice = {});
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Puts the content on the disk and gives it its name. Nothing is written afterwards.
  void commit();

 private:
  [[noreturn]] void refuse(int error) const;

  const std::filesystem::path name_;  // as given
  const std::string advice_;
  OutputTarget target_;
  std::filesystem::path unfinished_;  // empty: none is left
  int descriptor_ = -1;
};

/// Writes `text` to an OutputFile.
void replace_file(const std::filesystem::path& path, std::string_view text);

/// Opens a file that others read while it grows, and empties it. Throws DataError.
int open_growing_file(const std::filesystem::path& path);

}  // namespace penstock
