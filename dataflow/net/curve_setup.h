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
#include <filesystem>
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

// ---- certificates -----------------------------------------------------------

// CURVE keys in files: certificates as in pyzmq's zmq.auth and czmq's zcert. They
// are text in ZPL (RFC 4): under `curve`, `public-key = "..."` and, in the secret certificate only,
// `secret-key`.

struct CertificateFiles {
  std::filesystem::path public_file, secret_file;
};

/// Writes two files into `folder`: NAME.key, which is public, and NAME.key_secret, which only its
/// owner may read. Throws ConfigError if one of them exists already or cannot be written; then it
/// leaves no file behind.
CertificateFiles write_certificate(const CurveKeys& keys, const std::filesystem::path& folder,
                                   const std::string& name);

/// Both keys of a secret certificate. Throws ConfigError if a key is missing, if they are not a
/// pair, or if all users of the machine may read the file.
CurveKeys read_secret_certificate(const std::filesystem::path& file);
/// The public key of a certificate. Throws ConfigError.
std::string read_certificate(const std::filesystem::path& file);
/// The public keys at `place`: a folder of certificates, in which hidden files and names ending in
/// "_secret" are ignored, or a file with any number of certificates one after another. Throws
/// ConfigError, also if there is no certificate.
std::vector<std::string> read_certificates(const std::filesystem::path& place);

}  // namespace penstock::net
