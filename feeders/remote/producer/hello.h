// SPDX-License-Identifier: Apache-2.0
// What a producer says of itself before its first batch.
#pragma once

#include <string>
#include <string_view>

namespace penstock::producer {

/// JSON of at most kMaxFramedText bytes: name, host, pid, and boot where /proc tells it. What is
/// not printable ASCII becomes '?', and names are cut behind 255 characters.
std::string hello_text(std::string_view name);

/// The name of this process's program.
std::string program_name();

}  // namespace penstock::producer
