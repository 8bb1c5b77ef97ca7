// SPDX-License-Identifier: Apache-2.0
// penstock keygen: writes a pair of CURVE keys for ZeroMQ sockets to two files.
#include <fmt/format.h>

#include <string>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "dataflow/error.h"
#include "dataflow/net/certificate.h"

namespace penstock {
namespace {

int run(const Invocation& invocation) {
  std::string folder = ".", name = "penstock";
  constexpr FlagGroup flag{"Keys"};
  const Flag flags[] = {
      flag.text("out", "folder to write the files to", folder),
      flag("name", "name of the files: NAME.key and NAME.key_secret", name,
           [&](const std::string& text) {
             if (text.empty() || text.front() == '.' || text.find('/') != std::string::npos) {
               throw ConfigError("--name is '{}'; expected the name of a file", text);
             }
             name = text;
           })};
  if (!parse_flags({.verb = "keygen",
                    .summary = "Makes a pair of CURVE keys, as certificates that pyzmq's zmq.auth "
                               "and czmq read.",
                    .examples = "keygen --out keys --name producer"},
                   flags, invocation.arguments)) {
    return 0;
  }
  const net::CertificateFiles files = net::write_certificate(net::make_curve_keys(), folder, name);
  fmt::print("public: {}\nsecret: {}\n", files.public_file.string(), files.secret_file.string());
  return 0;
}

}  // namespace

extern constinit const VerbEntry keygen_verb{
    .name = "keygen",
    .summary = "make a pair of CURVE keys for ZeroMQ sockets",
    .run = run,
};

}  // namespace penstock
