// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/zmq_security.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock::net {
namespace {

constexpr std::size_t kKeyText = 40, kKeyBytes = 32;
constexpr char kGateAddress[] = "inproc://zeromq.zap.01";
constexpr std::string_view kGateVersion = "1.0", kDomain = "penstock";

void set(void* socket, int option, std::string_view text, const char* what) {
  if (zmq_setsockopt(socket, option, text.data(), text.size()) == 0) return;
  throw ConfigError("setting up CURVE: libzmq refused {}: {}", what, zmq_strerror(zmq_errno()));
}

void set(void* socket, int option, int value, const char* what) {
  set(socket, option, {reinterpret_cast<const char*>(&value), sizeof value}, what);
}

/// A key as bytes, the form in which libzmq passes it to the gate.
std::string decode(const std::string& key) {
  std::array<std::uint8_t, kKeyBytes> bytes{};
  if (key.size() != kKeyText || zmq_z85_decode(bytes.data(), key.c_str()) == nullptr) {
    throw ConfigError("a CURVE key has {} characters; expected 40 characters of Z85", key.size());
  }
  return {bytes.begin(), bytes.end()};
}

/// A key as text; empty if the bytes are not a key.
std::string encode(const std::string& bytes) {
  std::array<char, kKeyText + 1> text{};
  if (bytes.size() != kKeyBytes) return {};
  const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return zmq_z85_encode(text.data(), data, bytes.size()) == nullptr ? "" : text.data();
}

std::string_view text_of(const zmq::message_t& frame) {
  return {static_cast<const char*>(frame.data()), frame.size()};
}

}  // namespace

bool has_curve() noexcept { return zmq_has("curve") != 0; }

CurveKeys make_curve_keys() {
  std::array<char, kKeyText + 1> public_key{}, secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    throw Unavailable(
        "making CURVE keys: this libzmq was built without it; use one that has it, such as "
        "Debian's libzmq5");
  }
  return {public_key.data(), secret_key.data()};
}

bool is_curve_key(const std::string& text) {
  std::array<std::uint8_t, kKeyBytes> bytes{};
  return text.size() == kKeyText && zmq_z85_decode(bytes.data(), text.c_str()) != nullptr;
}

bool are_pair(const CurveKeys& keys) {
  std::array<char, kKeyText + 1> public_key{};
  return is_curve_key(keys.secret_key) &&
         zmq_curve_public(public_key.data(), keys.secret_key.c_str()) == 0 &&
         keys.public_key == public_key.data();
}

void make_curve_client(void* socket, const CurveKeys& own, const std::string& server_public_key) {
  set(socket, ZMQ_CURVE_SERVERKEY, server_public_key, "the server's public key");
  set(socket, ZMQ_CURVE_PUBLICKEY, own.public_key, "the public key");
  set(socket, ZMQ_CURVE_SECRETKEY, own.secret_key, "the secret key");
}

struct CurveGate::State {
  State(void* context, const Admission& admission, OnRefusal refusal)
      : admits_any(admission.any),
        on_refusal(std::move(refusal)),
        socket(zmq_socket(context, ZMQ_REP), zmq_close) {
    for (const std::string& key : admission.keys) admitted.insert(decode(key));
    if (!socket || zmq_bind(socket.get(), kGateAddress) != 0) {
      throw ConfigError(std::string("cannot open the authentication socket of CURVE: ") +
                        zmq_strerror(zmq_errno()));
    }
    thread = std::jthread([this] { run(); });
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { stop.signal(); }

  void run() {
    while (true) {
      zmq_pollitem_t items[] = {{socket.get(), 0, ZMQ_POLLIN, 0},
                                {nullptr, stop.get(), ZMQ_POLLIN, 0}};
      if (zmq_poll(items, 2, -1) < 0) {
        if (zmq_errno() == EINTR) continue;
        return;  // the context ends
      }
      if (items[1].revents != 0 || !answer()) return;
    }
  }

  /// A ZAP request is version, number, domain, address, identity, mechanism and credentials, which
  /// are the client's public key. The reply is version, number, status, text, user and metadata.
  bool answer() {
    std::array<std::string, 7> question;
    std::size_t frames = 0;
    for (bool more = true; more; ++frames) {
      zmq::message_t frame;
      if (zmq_msg_recv(frame.handle(), socket.get(), 0) < 0) return zmq_errno() == EINTR;
      if (frames < question.size()) question[frames] = text_of(frame);
      more = frame.more();
    }
    const bool enters = frames == question.size() && question[0] == kGateVersion &&
                        question[5] == "CURVE" && admits(question[6]);
    const std::string key = encode(question[6]);
    if (!enters && on_refusal) on_refusal(key, question[3]);
    const std::array<std::string_view, 6> reply{kGateVersion,
                                                question[1],
                                                enters ? "200" : "400",
                                                enters ? "" : "not of this run",
                                                enters ? std::string_view(key) : "",
                                                ""};
    for (std::size_t i = 0; i < reply.size(); ++i) {
      const int more = i + 1 < reply.size() ? ZMQ_SNDMORE : 0;
      if (zmq_send(socket.get(), reply[i].data(), reply[i].size(), more) < 0) return false;
    }
    return true;
  }

  bool admits(const std::string& key) {
    const std::lock_guard lock(mutex);
    return (admits_any || admitted.contains(key)) && !banned.contains(key);
  }

  const bool admits_any;
  const OnRefusal on_refusal;
  std::set<std::string> admitted;  // as bytes
  std::mutex mutex;
  std::set<std::string> banned;  // as bytes; mutex protects it
  EventFd stop;
  std::unique_ptr<void, int (*)(void*)> socket;
  std::jthread thread;  // last: the thread ends first
};

CurveGate::CurveGate(void* context, const Admission& admission, OnRefusal on_refusal)
    : state_(std::make_unique<State>(context, admission, std::move(on_refusal))) {}
CurveGate::~CurveGate() = default;

void CurveGate::guard(void* socket, const CurveKeys& own) {
  set(socket, ZMQ_CURVE_SERVER, 1, "the role of a server");
  set(socket, ZMQ_CURVE_SECRETKEY, own.secret_key, "the secret key");
  set(socket, ZMQ_ZAP_DOMAIN, kDomain, "the domain");
}

void CurveGate::ban(const std::string& public_key) {
  const std::lock_guard lock(state_->mutex);
  state_->banned.insert(decode(public_key));
}

}  // namespace penstock::net
