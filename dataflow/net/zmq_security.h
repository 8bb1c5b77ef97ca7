// SPDX-License-Identifier: Apache-2.0
// Secures ZeroMQ sockets that other machines can reach. CURVE encrypts the traffic and proves each
// side's identity to the other; a CurveGate accepts only clients with known keys.
//
// Keys are made in memory at the start of a run, and the parent process hands them to the others,
// or they are read from files (curve_setup.h). Sockets and contexts are libzmq's own handles.
// Set up a socket before it binds or connects.
//
// Thread-safety: a CurveGate has its own thread; any thread may call its members.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::net {

/// Two keys of 40 Z85 characters each.
struct CurveKeys {
  std::string public_key, secret_key;
};

/// True if libzmq was built with CURVE.
bool has_curve() noexcept;
/// Makes a new pair. Throws Unavailable if libzmq was built without CURVE.
CurveKeys make_curve_keys();
/// True if the text is 40 characters of Z85.
bool is_curve_key(const std::string& text);
/// True if the public key belongs to the secret key.
bool are_pair(const CurveKeys& keys);

/// Makes `socket` talk only to the server with that public key.
void make_curve_client(void* socket, const CurveKeys& own, const std::string& server_public_key);

/// Says which clients are accepted.
struct Admission {
  std::vector<std::string> keys{};  ///< public keys
  bool any = false;                 ///< accept every client that knows the server's public key
};

/// Decides which clients all servers of a context accept, through libzmq's ZAP (RFC 27). Messages
/// of accepted clients carry their public key as "User-Id".
class CurveGate {
 public:
  /// Called with the public key and the address of a refused client, on the gate's thread.
  using OnRefusal = std::function<void(const std::string& key, const std::string& address)>;
  /// The context must outlive the gate, and must have no other gate. Throws ConfigError for an
  /// invalid key.
  CurveGate(void* context, const Admission& admission, OnRefusal on_refusal = {});
  ~CurveGate();
  /// Makes `socket`, of the gate's context, a server that only accepted clients reach. Close it
  /// before the gate ends: libzmq accepts every client when no gate answers its requests.
  void guard(void* socket, const CurveKeys& own);
  /// Refuses the client with that public key from now on. Existing connections stay.
  void ban(const std::string& public_key);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::net
