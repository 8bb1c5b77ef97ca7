// SPDX-License-Identifier: Apache-2.0
// The texts of Penstock's own messages: what a producer says of itself, and what it is told. Each
// is a JSON object of at most 4,096 bytes, of which unknown names are left alone. Stateless: all
// functions may run on any thread. Those that parse throw DataError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dataflow/wire/framed.h"

namespace penstock {

/// What a producer says of itself. Texts are printable ASCII; empty, or 0: it did not say.
struct FramedHello {
  std::string name, host;  ///< at most 100 characters
  std::int64_t pid = 0;
  std::string boot;  ///< the boot id of its machine: who shares it shares the clock
  std::string pool;  ///< "@NAME" of the socket that hands out its shared memory
  bool operator==(const FramedHello&) const = default;
};

/// What a consumer wants.
struct FramedWelcome {
  std::int32_t images = 0, height = 0, width = 0, channels = 0, classes = 0;
  std::string boot;
  bool operator==(const FramedWelcome&) const = default;
};

/// Of messages of these kinds.
FramedHello parse_framed_hello(const FramedMessage& message);
FramedWelcome parse_framed_welcome(const FramedMessage& message);
/// Why the producer is not wanted, printable.
std::string parse_framed_refusal(const FramedMessage& message);

/// The text of each. What is empty, or 0, is left out; what is long is cut.
std::string write_framed_hello(const FramedHello& hello);
std::string write_framed_welcome(const FramedWelcome& welcome);
std::string write_framed_refusal(std::string_view why);

/// "loader on host7, pid 4711"; "producer 00c0ffee00c0ffee" of one that said nothing.
std::string describe(const FramedHello& hello, std::uint64_t producer);

/// The boot id of this machine; empty where the kernel does not say.
std::string boot_id();

}  // namespace penstock
