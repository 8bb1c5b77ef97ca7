// SPDX-License-Identifier: Apache-2.0
// What a producer says about itself before its first batch.
#pragma once

#include <string>
#include <string_view>

namespace penstock::producer {

/// JSON of at most kMaxFramedText bytes: name, host, pid, and boot id if /proc tells it. Other
/// characters than printable ASCII become '?', and names are cut after 255 characters.
std::string hello_text(std::string_view name);

/// The name of this process's program.
std::string program_name();

}  // namespace penstock::producer
