// SPDX-License-Identifier: Apache-2.0
// ZeroMQ sockets that other machines can reach: CURVE encrypts what they carry and proves to each
// side who the other is, and a CurveGate lets in those alone whose keys it knows.
//
// Keys are made in memory at the start of a run and handed to the other processes by whoever
// started them, or read from files (curve_certificate.h). Sockets and contexts are libzmq's own
// handles; sockets are set up before they bind or connect.
//
// Thread-safety: a CurveGate has a thread of its own; its members may be called from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

/// 40 characters of Z85 each.
struct CurveKeys {
  std::string public_key, secret_key;
};

/// Whether libzmq was built with it.
bool has_curve() noexcept;
/// A new pair. Throws Unavailable where libzmq was built without CURVE.
CurveKeys make_curve_keys();
/// Whether it is 40 characters of Z85.
bool is_curve_key(const std::string& text);
/// Whether the public key is that of the secret one.
bool are_pair(const CurveKeys& keys);

/// Talks to the server with that public key only.
void make_curve_client(void* socket, const CurveKeys& own, const std::string& server_public_key);

/// Who may come in.
struct Admission {
  std::vector<std::string> keys{};  ///< public keys
  bool anybody = false;             ///< who knows the server's public key, whatever their own
};

/// Answers libzmq's questions who may come in (its ZAP, RFC 27), of all servers of a context.
/// Messages of those who did have their public key as "User-Id".
class CurveGate {
 public:
  /// Someone who was turned away: their public key, and the address that they come from. Called on
  /// the gate's thread.
  using OnRefusal = std::function<void(const std::string& key, const std::string& address)>;
  /// The context outlives the gate, and has no other. Throws ConfigError for what is no key.
  CurveGate(void* context, const Admission& admission, OnRefusal on_refusal = {});
  ~CurveGate();
  /// Makes `socket`, of the gate's context, a server that only admitted clients reach. It is closed
  /// before the gate ends: libzmq lets everybody in where nobody answers its questions.
  void guard(void* socket, const CurveKeys& own);
  /// From now on the client with that public key is turned away; those that are in stay.
  void ban(const std::string& public_key);
  /// Clients that were turned away so far.
  std::int64_t refused() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
