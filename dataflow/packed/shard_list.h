// SPDX-License-Identifier: Apache-2.0
// Which files a packed data set consists of, from what was typed for --data-dir: a folder, a file,
// or a list with braces as shells and WebDataset have it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dataflow/file_list.h"
#include "dataflow/source.h"

namespace penstock {

/// "a-{000..002}.tar" and "{a,b}/x" as the names that they stand for, in their order; a text
/// without braces stands for itself. Numbers keep the digits of the first ("000"). Throws
/// ConfigError for braces that do not match, and for more than a million names.
std::vector<std::string> expand_braces(std::string_view text);

/// Does the folder have shards of a training set and of a validation set, such as
/// train-00000-of-01024 and validation-00000-of-00128?
bool has_both_sets(const std::string& folder);

/// The shards of the plan's directory in byte order: the files of a folder whose names `accepts`
/// holds for (those that begin with a dot or an underscore are left out, and so are folders); else
/// the names that it expands to. A folder with the sets train-* and validation-* gives the first,
/// and in evaluation, which does not augment, the second. Throws ConfigError if there are no
/// shards, if one does not exist, or if names of the form "x-00003-of-00010" show that some are
/// missing or that other sets are mixed. `format` and `example` go into the messages: "TFRecord",
/// "train-00000-of-01024".
FileList list_shards(const DataPlan& plan, bool (*accepts)(std::string_view name),
                     std::string_view format, std::string_view example);

}  // namespace penstock
