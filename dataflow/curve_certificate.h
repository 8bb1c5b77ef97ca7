// SPDX-License-Identifier: Apache-2.0
// CURVE keys in files: certificates as pyzmq's zmq.auth and czmq's zcert write and read them. Text
// in ZPL (RFC 4): under `curve`, `public-key = "..."` and, in the secret one alone, `secret-key`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "dataflow/zmq_security.h"

namespace penstock {

struct CertificateFiles {
  std::filesystem::path public_file, secret_file;
};

/// Writes NAME.key, which may be shown to anybody, and NAME.key_secret, which its owner alone may
/// read, into `folder`. Throws ConfigError where one of them is there already, or cannot be
/// written; nothing is left behind then.
CertificateFiles write_certificate(const CurveKeys& keys, const std::filesystem::path& folder,
                                   const std::string& name);

/// Both keys of a secret certificate. Throws ConfigError where it has none, they are no pair, or
/// everybody on the machine may read them.
CurveKeys read_secret_certificate(const std::filesystem::path& file);
/// The public key of a certificate. Throws ConfigError.
std::string read_certificate(const std::filesystem::path& file);
/// The public keys of all certificates in a folder, whose other files are hidden or end in
/// "_secret", or of a file in which any number of them stand one behind the other. Throws
/// ConfigError, also where there is none.
std::vector<std::string> read_certificates(const std::filesystem::path& place);

}  // namespace penstock
