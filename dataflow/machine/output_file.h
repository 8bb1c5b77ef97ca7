// SPDX-License-Identifier: Apache-2.0
// Writes every file that the user names; use nothing else for that. The content appears all at
// once. It replaces only regular files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/machine/file_descriptor.h"

namespace penstock {

/// The file that an output path leads to, after its symbolic links.
struct OutputTarget {
  std::filesystem::path path;
  bool is_device = false;  ///< a character device, such as /dev/null or a terminal
};

/// Throws DataError, as OutputFile does, if `path` names a FIFO, a socket, a block device or a
/// folder, or leads to a folder that is missing or cannot be written. It opens nothing and never
/// blocks.
OutputTarget find_output(const std::filesystem::path& path);

/// An output file during writing. commit() puts a new file from the same folder in the target's
/// place: readers see the old content or the new one. Without commit() the target keeps its
/// content. Symbolic links stay. A character device is written to directly. It removes unfinished
/// files that killed processes left in the folder.
class OutputFile {
 public:
  /// All members throw DataError with the path and the reason; `advice` ends the message.
  explicit OutputFile(const std::filesystem::path& path, std::string advice = {});
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Flushes the content to disk and gives the file its name. Do not write after it.
  void commit();

 private:
  [[noreturn]] void refuse(int error) const;

  const std::filesystem::path name_;  // as given
  const std::string advice_;
  OutputTarget target_;
  std::filesystem::path unfinished_;  // empty: there is none
  FileDescriptor descriptor_;
};

/// Writes `text` to an OutputFile.
void replace_file(const std::filesystem::path& path, std::string_view text);

/// Opens a file that other processes read while it grows, and empties it. Throws DataError.
FileDescriptor open_growing_file(const std::filesystem::path& path);

}  // namespace penstock
