// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/curve_setup.h"

#include <string_view>

#include "dataflow/error.h"
#include "dataflow/net/certificate.h"

namespace penstock::net {
namespace {

constexpr std::string_view kAny = "any";

Admission read_admission(const std::string& place) {
  if (place == kAny) return {.any = true};
  return {.keys = read_certificates(place)};
}

std::vector<std::string> read_server_keys(std::string_view files) {
  std::vector<std::string> keys;
  while (true) {
    const std::size_t comma = files.find(',');
    keys.push_back(read_certificate(files.substr(0, comma)));
    if (comma == std::string_view::npos) return keys;
    files.remove_prefix(comma + 1);
  }
}

}  // namespace

CurveSetup read_curve(const CurveFiles& files) {
  if (files.secret.empty()) {
    if (files.server_key.empty() && files.allow.empty()) return {};
    throw ConfigError(
        "CURVE keys of peers are given, but none of this side; add curve_secret (--curve-secret), "
        "a file that penstock keygen makes");
  }
  if (files.server_key.empty() == files.allow.empty()) {
    throw ConfigError(
        "curve_secret (--curve-secret) is given {}; give one of the two: curve_allow "
        "(--curve-allow) on the server side, curve_server_key (--curve-server-key) on the client "
        "side",
        files.allow.empty() ? "alone" : "with both others");
  }
  if (!has_curve()) {
    throw Unavailable(
        "sockets with CURVE keys: this libzmq was built without it; use one that has it, such as "
        "Debian's libzmq5");
  }
  CurveSetup curve;
  curve.own = read_secret_certificate(files.secret);
  if (files.allow.empty()) {
    curve.role = CurveSetup::Role::client;
    curve.server_keys = read_server_keys(files.server_key);
  } else {
    curve.role = CurveSetup::Role::server;
    curve.admission = read_admission(files.allow);
  }
  return curve;
}

}  // namespace penstock::net
