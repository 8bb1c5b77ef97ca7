// SPDX-License-Identifier: Apache-2.0
// The texts in Penstock's own messages: what a producer says about itself, and what it is told.
// Each is a JSON object of at most 4,096 bytes; unknown names are ignored. Stateless: any thread
// may call any function. The functions that parse throw DataError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "feeders/remote/wire/framed.h"

namespace penstock::remote {

/// What a producer says about itself. Texts are printable ASCII; empty or 0: not said.
struct FramedHello {
  std::string name, host;  ///< at most 100 characters
  std::int64_t pid = 0;
  std::string boot;  ///< boot id of its machine: processes with the same boot id share a clock
  std::string pool;  ///< "@NAME" of the socket that gives access to its shared memory
  bool operator==(const FramedHello&) const = default;
};

/// The batches that a consumer wants.
struct FramedWelcome {
  std::int32_t images = 0, height = 0, width = 0, channels = 0, classes = 0;
  std::string boot;
  bool operator==(const FramedWelcome&) const = default;
};

/// Parse messages of these kinds.
FramedHello parse_framed_hello(const FramedMessage& message);
FramedWelcome parse_framed_welcome(const FramedMessage& message);
/// The reason for the refusal, printable.
std::string parse_framed_refusal(const FramedMessage& message);

/// Write the text of each kind. Empty and 0 values are left out; long values are cut.
std::string write_framed_hello(const FramedHello& hello);
std::string write_framed_welcome(const FramedWelcome& welcome);
std::string write_framed_refusal(std::string_view why);

/// "loader on host7, pid 4711"; or "producer 00c0ffee00c0ffee" if the hello is empty.
std::string describe(const FramedHello& hello, std::uint64_t producer);

/// The boot id of this machine; empty if the kernel does not tell it.
std::string boot_id();

}  // namespace penstock::remote
