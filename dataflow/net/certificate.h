// SPDX-License-Identifier: Apache-2.0
// Reads and writes the files of CURVE keys: certificates as in pyzmq's zmq.auth and czmq's zcert.
// They are text in ZPL (RFC 4): under `curve`, `public-key = "..."` and, in the secret certificate
// only, `secret-key`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "dataflow/net/zmq_security.h"

namespace penstock::net {

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
