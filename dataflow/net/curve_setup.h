// SPDX-License-Identifier: Apache-2.0
// Which keys the sockets of a context have, as a user says it: in three names of files.
//
//   secret + allow        a CURVE server: lets in whose keys are in `allow`, or `any`
//   secret + server_key   a CURVE client: talks to the owner of that key and to nobody else
//
// Which side binds and which one connects has nothing to do with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataflow/zmq_security.h"

namespace penstock {

struct CurveFiles {
  std::string secret{};      ///< our own secret certificate; empty: no CURVE
  std::string server_key{};  ///< the server's public one; several servers': separated by commas
  std::string allow{};       ///< a folder or file of clients' public ones, or "any"
};

/// What stands in them.
struct CurveSetup {
  enum class Role : std::uint8_t { none, server, client };
  Role role = Role::none;
  CurveKeys own{};
  Admission admission{};                   ///< of a server
  std::vector<std::string> server_keys{};  ///< of a client: of all servers, or of each one
  explicit operator bool() const noexcept { return role != Role::none; }
};

/// Reads the files. Throws ConfigError for what contradicts itself or cannot be read, Unavailable
/// where libzmq was built without CURVE.
CurveSetup read_curve(const CurveFiles& files);

/// Help texts of the options and flags that name the files.
inline constexpr char kCurveSecretHelp[] =
    "file with the keys of this side, as `penstock keygen` writes it";
inline constexpr char kCurveServerKeyHelp[] =
    "public key file of the server; makes this side the CURVE client";
inline constexpr char kCurveAllowHelp[] =
    "folder or file of accepted public keys, or any; makes this side the CURVE server";

}  // namespace penstock
