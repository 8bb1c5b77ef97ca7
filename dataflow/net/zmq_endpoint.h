// SPDX-License-Identifier: Apache-2.0
// Parses the endpoints to which ZeroMQ sockets bind or connect, and makes checks that libzmq does
// not make: libzmq silently takes over the socket file of a live process, and binds to addresses
// that everyone can reach.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dataflow/machine/file_descriptor.h"

namespace penstock::net {

struct Endpoint {
  /// file: ipc:// with a path. abstract: ipc://@name, a Linux name without a file. inproc: between
  /// threads of one process.
  enum class Kind : std::uint8_t { file, abstract, tcp, inproc };
  Kind kind = Kind::file;
  std::string text;  ///< as libzmq reads it: localhost is 127.0.0.1
  std::string path;  ///< of the socket file; "*": libzmq chooses one
  std::string host;  ///< of tcp
};

/// Throws ConfigError if the text is not an endpoint.
Endpoint parse_endpoint(std::string_view text);

/// Makes sure that binding to `endpoint` takes nothing from a live process, and removes the socket
/// file of a dead one. `anywhere` allows addresses that other machines can reach: set it if the
/// socket has keys, or if the user accepts that it has none. Throws ConfigError. Keep the result
/// until the socket is bound: processes that bind one path take turns, so that the second of two
/// finds the first. Blocks for 2 s at most.
[[nodiscard]] FileDescriptor check_bindable(const Endpoint& endpoint, bool anywhere);

/// "ipc://testpipe (in /home/me)": adds the working directory to a relative path.
std::string describe(const Endpoint& endpoint);

}  // namespace penstock::net
