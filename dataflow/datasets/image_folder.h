// SPDX-License-Identifier: Apache-2.0
// A folder of classes, as ImageNet is unpacked: `directory/<class>/<image>`. Classes in byte order
// get the labels 0, 1, ..., as in torchvision's ImageFolder. Names that begin with a dot are
// ignored. Files are listed by their extension; only the decoder checks whether they are images.
// Images that lie deeper, or whose format is not decoded, are left out and counted in a note.
//
// Memory: the names of all files in one block, and an offset for every sixteenth name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/file_list.h"
#include "dataflow/options.h"
#include "dataflow/source.h"

namespace penstock::datasets {

struct ImageFiles {
  FileList files;                 ///< sorted by label
  std::vector<std::size_t> ends;  ///< per label: number of files with this label or a smaller one
  std::string note;               ///< a remark about the list for the user; may be empty

  std::int32_t classes() const noexcept { return static_cast<std::int32_t>(ends.size()); }
  std::int32_t label(std::size_t file) const noexcept {
    return static_cast<std::int32_t>(std::ranges::upper_bound(ends, file) - ends.begin());
  }
};

/// What a file is to a listing, by its extension or, without one, by its first bytes.
enum class ListedFile : std::uint8_t { image, undecoded, other };
ListedFile listed_file(const std::string& path);

/// Names of the class folders in `directory`, in byte order. Throws ConfigError with the path if
/// there are none, or more than `limit`.
std::vector<std::string> list_class_folders(const std::string& directory, std::int32_t limit);

/// All images below `directory`, class by class, in byte order. Throws ConfigError with the path if
/// there are no images, if they cannot be listed, or if there are more than `classes` classes.
/// After a stop request it leaves out the classes that it has not begun.
ImageFiles list_image_files(const std::string& directory, std::int32_t classes,
                            const std::stop_token& stop = {});

/// Names of the images in `directory` itself, in byte order. Throws ConfigError with the path if
/// there are none, or if they cannot be listed.
std::vector<std::string> list_image_names(const std::string& directory);

/// Fills `bytes` with the whole file. Throws DataError with the path.
void read_image_file(const std::string& path, std::vector<std::byte>& bytes);

/// The images of a folder by the options of the source `image-folder`. Throws ConfigError as the
/// functions above do.
ImageFiles open_image_folder(const DataPlan& plan, const Options& options);

}  // namespace penstock::datasets
