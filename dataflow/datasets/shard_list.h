// SPDX-License-Identifier: Apache-2.0
// Finds the files of a packed data set from the value of --data-dir: a folder, a file, or a list
// with braces as in shells and WebDataset. Finds the source that can read them by their names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dataflow/file_list.h"
#include "dataflow/options.h"
#include "dataflow/source.h"

namespace penstock::datasets {

/// Expands "a-{000..002}.tar" or "{a,b}/x" to names, in order. A text without braces stands for
/// itself. Numbers keep the digits of the first ("000"). Throws ConfigError for braces that do not
/// match, and for more than a million names.
std::vector<std::string> expand_braces(std::string_view text);

/// The validation set, such as "validation-{00000..00127}-of-00128", if the folder has shards of
/// both a training set and a validation set; else empty.
std::string validation_set(const std::string& folder);

/// The shards of the plan's directory in byte order. For a folder they are the files that `accepts`
/// accepts, without folders and names that begin with a dot or an underscore. Otherwise they are
/// the names that the text expands to. If a folder has the sets train-* and validation-*, it gives
/// the first, or in evaluation, which does not augment, the second. Throws ConfigError if there are
/// no shards, if one does not exist, or if names of the form "x-00003-of-00010" show that some are
/// missing or that sets are mixed. Messages use `format` and `example`: "TFRecord",
/// "train-00000-of-01024".
FileList list_shards(const DataPlan& plan, bool (*accepts)(std::string_view name),
                     std::string_view format, std::string_view example);

}  // namespace penstock::datasets
