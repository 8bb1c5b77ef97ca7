// SPDX-License-Identifier: Apache-2.0
// Reports libzmq's connection events for a socket: which peer connected, which one left, and which
// handshake failed and why. Also sets the limits that protect every socket from unknown peers.
// Sockets, contexts and messages are libzmq's own handles.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace penstock::net {

/// Sets the limits of a socket before it binds or connects: messages of at most `max_message` bytes
/// (-1: no limit), a handshake timeout of 10 s, TCP keep-alive that notices a dead host within 30
/// s, and no linger.
void bound_socket(void* socket, std::int64_t max_message);

/// The peer of a connection: "10.0.0.7", or "process 4711 of user 1000". kGonePeer if the
/// connection has ended meanwhile.
std::string peer_of(int connection);
inline constexpr const char* kGonePeer = "a peer that has gone";

/// Makes an address from libzmq readable: "localhost:0:0:4711" becomes "process 4711".
std::string readable_address(const std::string& address);

/// The sender of a message.
struct MessageSender {
  int connection = -1;  ///< its descriptor; another connection may use the number by now
  std::string address;
  std::string public_key;  ///< empty: it has none
};
MessageSender sender_of(void* message);
/// "10.0.0.7 with key ...".
std::string describe(const MessageSender& sender);

enum class HandshakeFault : std::uint8_t {
  mechanism,     ///< only one side has CURVE keys
  key,           ///< the client has another server's key
  not_admitted,  ///< the server does not know the client's key
  broken_off,    ///< the other side ended the handshake, or did not answer
};

struct ConnectionEvent {
  enum class Kind : std::uint8_t { opened, joined, ended };
  Kind kind = Kind::opened;
  int connection = -1;                  ///< for opened and ended
  std::string peer;                     ///< for ended: peer_of
  std::optional<HandshakeFault> fault;  ///< for ended: why the handshake failed
};

class ZmqMonitor {
 public:
  /// Make it before the socket binds or connects, and destroy it before the socket.
  ZmqMonitor(void* context, void* watched);
  ~ZmqMonitor();
  /// The socket to poll for input.
  void* handle() noexcept { return socket_.get(); }
  /// Empty if there is no event now. A fault is assigned to the next connection that ends. With
  /// several I/O threads this may be another connection that ends at the same moment.
  std::optional<ConnectionEvent> next();

 private:
  void* const watched_;
  std::unique_ptr<void, int (*)(void*)> socket_;
  std::map<int, std::string> peers_;
  std::optional<HandshakeFault> fault_;  // fault of the connection that ends next
};

}  // namespace penstock::net
