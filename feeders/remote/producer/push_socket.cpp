// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/producer/push_socket.h"

#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <thread>
#include <utility>

#include "feeders/remote/producer/connections.h"
#include "feeders/remote/producer/failure.h"
#include "feeders/remote/producer/socket_file.h"

namespace penstock::producer {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kKeyCharacters = 40;

/// The same limits as Penstock's own sockets: a timeout for handshakes, and TCP keep-alive.
constexpr std::array<std::pair<int, int>, 7> kBounds{{
    {ZMQ_LINGER, 0},
    {ZMQ_IMMEDIATE, 1},  // queue only for connected consumers
    {ZMQ_HANDSHAKE_IVL, 10'000},
    {ZMQ_TCP_KEEPALIVE, 1},
    {ZMQ_TCP_KEEPALIVE_IDLE, 15},
    {ZMQ_TCP_KEEPALIVE_INTVL, 5},
    {ZMQ_TCP_KEEPALIVE_CNT, 3},
}};

/// Time between checks whether consumers have read everything: the kernel has no event for it.
constexpr milliseconds kUnreadPeriod{5};

[[noreturn]] void fail(const std::string& what) {
  throw Failure(PENSTOCK_PRODUCER_FAILED, what + ": " + zmq_strerror(zmq_errno()));
}

void set(void* socket, int option, int value) {
  if (zmq_setsockopt(socket, option, &value, sizeof value) != 0) fail("cannot set up a socket");
}

void set_key(void* socket, int option, const char* name, const std::string& key) {
  std::array<std::uint8_t, 32> bytes{};
  if (key.size() != kKeyCharacters || zmq_z85_decode(bytes.data(), key.c_str()) == nullptr) {
    throw invalid(std::string(name) +
                  " is not a key; expected 40 characters of Z85, as `penstock keygen` writes them");
  }
  if (zmq_setsockopt(socket, option, bytes.data(), bytes.size()) != 0) fail("cannot set a key");
}

void set_keys(void* socket, const PushOptions& options) {
  if (options.server_key.empty() && options.public_key.empty() && options.secret_key.empty()) {
    return;
  }
  if (zmq_has("curve") == 0) throw invalid("libzmq was built without CURVE; leave the keys out");
  set_key(socket, ZMQ_CURVE_SERVERKEY, "server_key", options.server_key);
  set_key(socket, ZMQ_CURVE_PUBLICKEY, "public_key", options.public_key);
  set_key(socket, ZMQ_CURVE_SECRETKEY, "secret_key", options.secret_key);
  std::array<char, kKeyCharacters + 1> derived{};
  if (zmq_curve_public(derived.data(), options.secret_key.c_str()) != 0 ||
      options.public_key != derived.data()) {
    throw invalid("public_key and secret_key are not a pair; take both from one certificate");
  }
}

[[noreturn]] void refuse(const PushOptions& options, int error) {
  throw invalid(std::string("cannot ") + (options.bind ? "bind " : "connect to ") +
                options.endpoint + ": " + zmq_strerror(error) +
                "; expected ipc://PATH, ipc://@NAME or tcp://HOST:PORT, and to bind one that no "
                "other process listens at");
}

std::string address_of(void* socket) {
  std::array<char, 1024> text{};
  std::size_t size = text.size();
  if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, text.data(), &size) != 0) return "";
  return text.data();
}

struct CloseSocket {
  void operator()(void* socket) const noexcept { zmq_close(socket); }
};
struct EndContext {
  void operator()(void* context) const noexcept {
    while (zmq_ctx_term(context) != 0 && zmq_errno() == EINTR) {
    }
  }
};

}  // namespace

struct PushSocket::State {
  explicit State(const PushOptions& options)
      : context(zmq_ctx_new()), socket(zmq_socket(context.get(), ZMQ_PUSH)) {
    if (!socket) fail("cannot open a ZeroMQ socket");
    for (const auto& [option, value] : kBounds) set(socket.get(), option, value);
    set(socket.get(), ZMQ_SNDHWM, options.hwm);
    if (options.endpoint.find('[') != std::string::npos) set(socket.get(), ZMQ_IPV6, 1);
    set_keys(socket.get(), options);
    connections.emplace(context.get(), socket.get());
    if (options.bind && is_listened_to(options.endpoint)) refuse(options, EADDRINUSE);
    const char* const endpoint = options.endpoint.c_str();
    if ((options.bind ? zmq_bind : zmq_connect)(socket.get(), endpoint) != 0) {
      refuse(options, zmq_errno());
    }
    address = address_of(socket.get());
    if (options.bind) file.emplace(address);
  }

  std::unique_ptr<void, EndContext> context;
  std::unique_ptr<void, CloseSocket> socket;
  std::optional<Connections> connections;
  std::string address;
  std::optional<SocketFile> file;  // removed while we listen: the name is still ours
};

PushSocket::PushSocket(const PushOptions& options) : state_(std::make_unique<State>(options)) {}
PushSocket::~PushSocket() {
  if (state_) close(milliseconds(0));
}

const std::string& PushSocket::address() const noexcept { return state_->address; }
const Connections& PushSocket::connections() const noexcept { return *state_->connections; }

bool PushSocket::wait_for_room(SteadyTime deadline) {
  while (true) {
    state_->connections->look();
    zmq_pollitem_t items[] = {{state_->socket.get(), 0, ZMQ_POLLOUT, 0},
                              {state_->connections->handle(), 0, ZMQ_POLLIN, 0}};
    const auto left =
        std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (zmq_poll(items, 2, std::max<long>(left, 0)) < 0 && zmq_errno() != EINTR) {
      fail("cannot wait for a consumer");
    }
    if ((items[0].revents & ZMQ_POLLOUT) != 0) return true;
    if (left <= 0) return false;
  }
}

bool PushSocket::begin(Frame& first, bool more) {
  zmq_msg_t* const message = first.hand_over();
  const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
  while (zmq_msg_send(message, state_->socket.get(), flags) < 0) {
    if (zmq_errno() == EINTR) continue;
    first.take_back();
    if (zmq_errno() == EAGAIN) return false;
    fail("cannot send");
  }
  return true;
}

void PushSocket::finish(std::span<Frame> others) {
  bool gone = false;
  for (std::size_t i = 0; i < others.size(); ++i) {
    zmq_msg_t* const message = others[i].hand_over();
    const bool more = i + 1 < others.size();
    const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
    while (!gone && zmq_msg_send(message, state_->socket.get(), flags) < 0) {
      if (zmq_errno() == EINTR) continue;
      if (zmq_errno() != EAGAIN) fail("cannot send");
      // The consumer has gone. libzmq drops frames up to the end of the message; send that end.
      if (more) zmq_send(state_->socket.get(), nullptr, 0, ZMQ_DONTWAIT);
      gone = true;
    }
  }
}

bool PushSocket::wait_until_read(SteadyTime deadline) {
  // Twice in a row, because libzmq sends more when the kernel has room again.
  for (int looks = 0; looks < 2;) {
    state_->connections->look();
    looks = state_->connections->have_unread_bytes() ? 0 : looks + 1;
    if (std::chrono::steady_clock::now() >= deadline) return looks > 0;
    std::this_thread::sleep_for(kUnreadPeriod);
  }
  return true;
}

void PushSocket::close(milliseconds linger) noexcept {
  // libzmq 4.3 aborts the process if it drops a half-written message on a connection that ends.
  if (linger == milliseconds(0)) state_->connections->hang_up();
  const int time = static_cast<int>(std::clamp<std::int64_t>(linger.count(), 0, INT_MAX));
  zmq_setsockopt(state_->socket.get(), ZMQ_LINGER, &time, sizeof time);
  state_.reset();
}

}  // namespace penstock::producer
