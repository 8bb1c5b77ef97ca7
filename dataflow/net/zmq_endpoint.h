// SPDX-License-Identifier: Apache-2.0
// Where a ZeroMQ socket is bound or connects to, and the checks that libzmq does not make: it takes
// the socket file of a live process over without a word, and binds to all the world.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

struct Endpoint {
  /// file: ipc:// with a path. abstract: ipc://@name, a Linux name without a file. inproc: threads
  /// of one process.
  enum class Kind : std::uint8_t { file, abstract, tcp, inproc };
  Kind kind = Kind::file;
  std::string text;  ///< as libzmq takes it
  std::string path;  ///< of the socket file; "*" lets libzmq choose one
  std::string host;  ///< of tcp
};

/// Throws ConfigError for text that is no endpoint.
Endpoint parse_endpoint(std::string_view text);

/// Makes sure that binding to `endpoint` takes nothing from a live process, and removes the socket
/// file of a dead one. `anywhere` allows addresses that other machines can reach: the socket has
/// keys, or the user accepts that it has none. Throws ConfigError.
void check_bindable(const Endpoint& endpoint, bool anywhere);

/// "ipc://testpipe (in /home/me)": with what a relative path depends on.
std::string describe(const Endpoint& endpoint);

}  // namespace penstock
