// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/producer/push_socket.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "dataflow/net/socket_file.h"
#include "dataflow/net/zmq_monitor.h"

namespace penstock::producer {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kKeyCharacters = 40;

/// Time between checks whether consumers have read everything: the kernel has no event for it.
constexpr milliseconds kUnreadPeriod{5};

/// How long libzmq may take to notice closed connections.
constexpr std::chrono::seconds kHangUp{1};

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

/// 0: the descriptor is closed.
ino_t inode_of(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 ? about.st_ino : 0;
}

std::string text_of(net::HandshakeFault fault) {
  switch (fault) {
    case net::HandshakeFault::mechanism:
      return "only one of the two sides has CURVE keys";
    case net::HandshakeFault::key:
      return "server_key is not the consumer's public key";
    case net::HandshakeFault::not_admitted:
      return "the consumer does not know public_key; add it to its curve_allow";
    case net::HandshakeFault::broken_off:
      break;
  }
  return "the consumer aborted the handshake; check that server_key is its public key";
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

void Frame::Close::operator()(zmq_msg_t* message) const noexcept {
  zmq_msg_close(message);
  delete message;
}

Frame::Frame(const void* data, std::size_t bytes, std::function<void()> done) {
  const auto finish = [](void*, void* hint) {
    const std::unique_ptr<Holder> holder(static_cast<Holder*>(hint));
    if (holder->handed_over && holder->done) holder->done();
  };
  auto holder = std::make_unique<Holder>(Holder{.done = std::move(done)});
  auto message = std::make_unique<zmq_msg_t>();
  if (zmq_msg_init_data(message.get(), const_cast<void*>(data), bytes, finish, holder.get()) != 0) {
    throw std::bad_alloc();
  }
  holder_ = holder.release();
  message_.reset(message.release());
}

Frame Frame::copy_of(std::span<const std::byte> bytes, std::function<void()> done) {
  std::shared_ptr<std::byte[]> memory(new std::byte[bytes.size()]);
  std::memcpy(memory.get(), bytes.data(), bytes.size());
  return Frame(memory.get(), bytes.size(), [memory, done = std::move(done)] {
    if (done) done();
  });
}

std::span<const std::byte> Frame::bytes() const noexcept {
  return {static_cast<const std::byte*>(zmq_msg_data(message_.get())),
          zmq_msg_size(message_.get())};
}

zmq_msg_t* Frame::hand_over() noexcept {
  holder_->handed_over = true;
  return message_.get();
}

struct PushSocket::State {
  explicit State(const PushOptions& options)
      : context(zmq_ctx_new()), socket(zmq_socket(context.get(), ZMQ_PUSH)) {
    if (!socket) fail("cannot open a ZeroMQ socket");
    net::bound_socket(socket.get(), -1);
    set(socket.get(), ZMQ_IMMEDIATE, 1);  // queue only for connected consumers
    set(socket.get(), ZMQ_SNDHWM, options.hwm);
    if (options.endpoint.find('[') != std::string::npos) set(socket.get(), ZMQ_IPV6, 1);
    set_keys(socket.get(), options);
    monitor.emplace(context.get(), socket.get());
    const bool taken =
        net::find_listener(net::socket_path(options.endpoint)) == net::Listener::live;
    if (options.bind && taken) refuse(options, EADDRINUSE);
    const char* const endpoint = options.endpoint.c_str();
    if ((options.bind ? zmq_bind : zmq_connect)(socket.get(), endpoint) != 0) {
      refuse(options, zmq_errno());
    }
    address = address_of(socket.get());
    if (options.bind) file.emplace(address);
  }

  /// Handles all events since the last call.
  void look() {
    while (const std::optional<net::ConnectionEvent> event = monitor->next()) {
      switch (event->kind) {
        case net::ConnectionEvent::Kind::opened:
          open[event->connection] = inode_of(event->connection);
          break;
        case net::ConnectionEvent::Kind::joined:
          ++joined;
          break;
        case net::ConnectionEvent::Kind::ended:
          const bool was_open = open.erase(event->connection) > 0;
          if (event->fault) {
            ++refused;
            last_fault = event->fault;
          } else if (was_open) {
            ++left;
          }
      }
    }
  }

  /// Closes open connections, and waits until libzmq has noticed, a second at most.
  void close_connections() {
    look();
    for (const auto& [connection, inode] : open) {
      if (inode_of(connection) == inode) shutdown(connection, SHUT_RDWR);
    }
    const auto deadline = std::chrono::steady_clock::now() + kHangUp;
    while (!open.empty() && std::chrono::steady_clock::now() < deadline) {
      zmq_pollitem_t item{monitor->handle(), 0, ZMQ_POLLIN, 0};
      zmq_poll(&item, 1, 10);
      look();
    }
  }

  std::unique_ptr<void, EndContext> context;
  std::unique_ptr<void, CloseSocket> socket;
  std::optional<net::ZmqMonitor> monitor;
  std::string address;
  std::optional<net::SocketFile> file;  // removed while we listen: the name is still ours
  std::map<int, ino_t> open;            // connections; libzmq's descriptors may be reused
  std::int64_t joined = 0, left = 0, refused = 0;
  std::optional<net::HandshakeFault> last_fault;
};

PushSocket::PushSocket(const PushOptions& options) : state_(std::make_unique<State>(options)) {}
PushSocket::~PushSocket() {
  if (state_) close(milliseconds(0));
}

const std::string& PushSocket::address() const noexcept { return state_->address; }

std::string PushSocket::describe_consumers() const {
  const State& state = *state_;
  std::string text = state.joined == 0
                         ? " (no consumer ever connected"
                         : " (" + std::to_string(state.joined) + " consumers connected, " +
                               std::to_string(state.left) + " went away";
  if (state.refused > 0) {
    text +=
        "; " + std::to_string(state.refused) + " handshakes failed: " + text_of(*state.last_fault);
  }
  return text + ")";
}

bool PushSocket::wait_for_room(SteadyTime deadline) {
  while (true) {
    state_->look();
    zmq_pollitem_t items[] = {{state_->socket.get(), 0, ZMQ_POLLOUT, 0},
                              {state_->monitor->handle(), 0, ZMQ_POLLIN, 0}};
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
    state_->look();
    const bool unread = std::ranges::any_of(state_->open, [](const auto& connection) {
      int bytes = 0;
      return ioctl(connection.first, SIOCOUTQ, &bytes) == 0 && bytes > 0;
    });
    looks = unread ? 0 : looks + 1;
    if (std::chrono::steady_clock::now() >= deadline) return looks > 0;
    std::this_thread::sleep_for(kUnreadPeriod);
  }
  return true;
}

void PushSocket::close(milliseconds linger) noexcept {
  // libzmq 4.3 aborts the process if it drops a half-written message on a connection that ends.
  if (linger == milliseconds(0)) state_->close_connections();
  const int time = static_cast<int>(std::clamp<std::int64_t>(linger.count(), 0, INT_MAX));
  zmq_setsockopt(state_->socket.get(), ZMQ_LINGER, &time, sizeof time);
  state_.reset();
}

}  // namespace penstock::producer
