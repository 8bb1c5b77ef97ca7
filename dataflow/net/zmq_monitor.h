// SPDX-License-Identifier: Apache-2.0
// What libzmq tells of the connections of a socket: who came, who went, and whose handshake failed
// and why; and the bounds that every socket of ours is given in front of peers that it does not
// know. Sockets, contexts and messages are libzmq's own handles.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace penstock {

/// What every socket gets before it binds or connects: messages of at most `max_message` bytes (-1:
/// any), an end to handshakes that take longer than 10 s, and TCP's own probes, by which a host
/// that is gone is noticed within 30 s. Nothing lingers.
void bound_socket(void* socket, std::int64_t max_message);

/// Whoever is at the other end of a connection: "10.0.0.7", or "process 4711 of user 1000"; of one
/// that has ended meanwhile, kGonePeer.
std::string peer_of(int connection);
inline constexpr const char* kGonePeer = "a peer that has gone";

/// An address as libzmq writes it, as people do: "localhost:0:0:4711" is "process 4711".
std::string readable_address(const std::string& address);

/// Who sent a message.
struct MessageSender {
  int connection = -1;  ///< its descriptor, which may be another's by now
  std::string address;
  std::string public_key;  ///< empty: it has none
};
MessageSender sender_of(void* message);
/// "10.0.0.7 with key ...".
std::string describe(const MessageSender& sender);

enum class HandshakeFault : std::uint8_t {
  mechanism,     ///< one side has CURVE keys and the other none
  key,           ///< a client with another server's key
  not_admitted,  ///< a client whose key the server does not know
  broken_off,    ///< the other side ended it, or let it wait
};

struct ConnectionEvent {
  enum class Kind : std::uint8_t { opened, joined, ended };
  Kind kind = Kind::opened;
  int connection = -1;                  ///< of opened and ended
  std::string peer;                     ///< of ended: peer_of
  std::optional<HandshakeFault> fault;  ///< of ended: why it came to nothing
};

class ZmqMonitor {
 public:
  /// Made before the socket binds or connects, and destroyed before the socket.
  ZmqMonitor(void* context, void* watched);
  ~ZmqMonitor();
  /// To be polled for input.
  void* handle() noexcept { return socket_.get(); }
  /// Empty: there is none now. A fault is told apart from others' by the end of its connection,
  /// which with several I/O threads may be another's that ends at the same moment.
  std::optional<ConnectionEvent> next();

 private:
  struct Close {
    void operator()(void* socket) const noexcept;
  };
  void* const watched_;
  std::unique_ptr<void, Close> socket_;
  std::map<int, std::string> peers_;
  std::optional<HandshakeFault> fault_;  // of the connection that ends next
};

}  // namespace penstock
