// SPDX-License-Identifier: Apache-2.0
// Sets up the keys of a context's sockets from the three file names that a user gives, and reads
// and writes these files.
//
//   secret + allow        a CURVE server: accepts clients with keys in `allow`, or `any`
//   secret + server_key   a CURVE client: talks only to the owner of that key
//
// These roles are independent of which side binds and which side connects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataflow/net/zmq_security.h"

namespace penstock::net {

struct CurveFiles {
  std::string secret{};      ///< this side's secret certificate; empty: no CURVE
  std::string server_key{};  ///< the server's public certificate; several: separated by commas
  std::string allow{};       ///< a folder or file of clients' public certificates, or "any"
};

/// The content of these files.
struct CurveSetup {
  enum class Role : std::uint8_t { none, server, client };
  Role role = Role::none;
  CurveKeys own{};
  Admission admission{};                   ///< for a server
  std::vector<std::string> server_keys{};  ///< for a client: one for all servers, or one for each
  explicit operator bool() const noexcept { return role != Role::none; }
};

/// Reads the files. Throws ConfigError if they contradict each other or cannot be read, Unavailable
/// if libzmq was built without CURVE.
CurveSetup read_curve(const CurveFiles& files);

/// Help texts of the options and flags that name the files.
inline constexpr char kCurveSecretHelp[] =
    "file with the keys of this side, as `penstock keygen` writes it";
inline constexpr char kCurveServerKeyHelp[] =
    "public key file of the server; makes this side the CURVE client";
inline constexpr char kCurveAllowHelp[] =
    "folder or file of accepted public keys, or any; makes this side the CURVE server";

}  // namespace penstock::net
