// SPDX-License-Identifier: Apache-2.0
#include "feeders/zmq_socket.h"

#include <linux/sockios.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <zmq.hpp>

#include "dataflow/error.h"

namespace penstock {
namespace {

/// Where libzmq reports the peers of the one socket of a context.
constexpr char kMonitorAddress[] = "inproc://peers";
constexpr int kMonitoredEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED |
                                 ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;

/// No wait is longer: far from where sums of times overflow.
constexpr Nanoseconds kLongest = std::chrono::hours(24 * 365);

/// An eventfd: readable for ever once it was signalled.
class StopSignal {
 public:
  StopSignal() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw ConfigError(std::string("cannot open an eventfd: ") + std::strerror(errno));
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal() { close(fd_); }
  void send() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
  }
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

/// The socket file that a bind made, removed at the end unless it is another's by then.
class SocketFile {
 public:
  explicit SocketFile(const std::string& address) {
    if (!address.starts_with("ipc://") || address.starts_with("ipc://@")) return;
    path_ = address.substr(6);
    if (lstat(path_.c_str(), &made_) != 0) path_.clear();
  }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile() {
    struct stat found {};
    if (path_.empty() || lstat(path_.c_str(), &found) != 0) return;
    if (found.st_dev == made_.st_dev && found.st_ino == made_.st_ino) unlink(path_.c_str());
  }

 private:
  std::string path_;
  struct stat made_ {};
};

[[noreturn]] void refuse(const Endpoint& endpoint, bool bind, const zmq::error_t& error) {
  std::string text = std::string("cannot ") + (bind ? "bind " : "connect to ") + describe(endpoint);
  switch (error.num()) {
    case EADDRINUSE:
      text += ": it is already in use by another process; stop that one, or give another endpoint";
      break;
    case ENOENT:
      text += ": no such folder; make it, or give another endpoint";
      break;
    default:
      text += std::string(": ") + error.what() + "; give another endpoint";
  }
  throw ConfigError(text);
}

}  // namespace

struct ZmqSocket::State {
  State(const Endpoint& endpoint, const ZmqSocketOptions& options)
      : context(static_cast<int>(options.io_threads)),
        role(options.role),
        socket(context, role == ZmqSocketOptions::Role::pull ? ZMQ_PULL : ZMQ_PUSH),
        peers_monitor(context, ZMQ_PAIR) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvhwm, static_cast<int>(options.hwm));
    socket.set(zmq::sockopt::sndhwm, static_cast<int>(options.hwm));
    socket.set(zmq::sockopt::maxmsgsize, options.max_message);
    // Batches go to peers that are there, and do not pile up for one that never comes.
    socket.set(zmq::sockopt::immediate, 1);
    if (endpoint.host.starts_with('[')) socket.set(zmq::sockopt::ipv6, 1);
    if (zmq_socket_monitor(socket.handle(), kMonitorAddress, kMonitoredEvents) != 0) {
      throw zmq::error_t();
    }
    peers_monitor.set(zmq::sockopt::linger, 0);
    peers_monitor.set(zmq::sockopt::rcvhwm, 0);  // else a full pipe blocks libzmq's own thread
    peers_monitor.connect(kMonitorAddress);
    try {
      options.bind ? socket.bind(endpoint.text) : socket.connect(endpoint.text);
    } catch (const zmq::error_t& error) {
      refuse(endpoint, options.bind, error);
    }
    address = socket.get(zmq::sockopt::last_endpoint);
    if (options.bind) file.emplace(address);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { zmq_socket_monitor(socket.handle(), nullptr, 0); }

  /// An event is its number in 16 bits, a value in 32 (of connections: their descriptor), and a
  /// frame with the address.
  void count_peers() {
    zmq::message_t event;
    while (peers_monitor.recv(event, zmq::recv_flags::dontwait)) {
      std::uint16_t number = 0;
      std::int32_t value = 0;
      PENSTOCK_ASSERT(event.size() == sizeof number + sizeof value);
      std::memcpy(&number, event.data(), sizeof number);
      std::memcpy(&value, event.data<std::byte>() + sizeof number, sizeof value);
      if (number == ZMQ_EVENT_ACCEPTED || number == ZMQ_EVENT_CONNECTED) connections.insert(value);
      if (number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) ++peers.joined;
      if (number == ZMQ_EVENT_DISCONNECTED) peers.left += connections.erase(value) > 0 ? 1 : 0;
      if (event.more()) static_cast<void>(peers_monitor.recv(event, zmq::recv_flags::dontwait));
    }
  }

  StopSignal stop;
  zmq::context_t context;
  const ZmqSocketOptions::Role role;
  zmq::socket_t socket, peers_monitor;
  Peers peers;
  std::set<int> connections;
  std::string address;
  std::optional<SocketFile> file;  // removed while we still listen: nobody can have taken the name
};

ZmqSocket::ZmqSocket(const Endpoint& endpoint, const ZmqSocketOptions& options) {
  if (options.bind) check_bindable(endpoint, options.insecure);
  try {
    state_ = std::make_unique<State>(endpoint, options);
  } catch (const zmq::error_t& error) {
    throw ConfigError("cannot open a ZeroMQ socket for " + endpoint.text + ": " + error.what() +
                      "; is the process out of file descriptors?");
  }
}

ZmqSocket::~ZmqSocket() = default;

void* ZmqSocket::native() noexcept { return state_->socket.handle(); }
const std::string& ZmqSocket::address() const noexcept { return state_->address; }
ZmqSocket::Peers ZmqSocket::peers() const noexcept { return state_->peers; }

bool ZmqSocket::has_unread_bytes() {
  state_->count_peers();
  return std::any_of(state_->connections.begin(), state_->connections.end(), [](int connection) {
    int unread = 0;
    return ioctl(connection, SIOCOUTQ, &unread) == 0 && unread > 0;
  });
}

void ZmqSocket::linger(std::chrono::milliseconds time) {
  state_->socket.set(zmq::sockopt::linger, static_cast<int>(time.count()));
}

ZmqSocket::Wake ZmqSocket::wait(Nanoseconds limit, const std::stop_token& stop, int other_fd) {
  // Peers live in real time, so this wait does, whatever clock the harness runs on.
  const auto deadline = std::chrono::steady_clock::now() + std::min(limit, kLongest);
  const std::stop_callback wake(stop, [this] { state_->stop.send(); });
  const bool pulls = state_->role == ZmqSocketOptions::Role::pull;
  const short ready = pulls ? ZMQ_POLLIN : ZMQ_POLLOUT;
  while (true) {
    zmq::pollitem_t items[] = {{state_->socket.handle(), 0, ready, 0},
                               {state_->peers_monitor.handle(), 0, ZMQ_POLLIN, 0},
                               {nullptr, state_->stop.fd(), ZMQ_POLLIN, 0},
                               {nullptr, other_fd, ZMQ_POLLIN, 0}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const long timeout_ms = std::max<long>(left.count(), 0);
    if (zmq_poll(items, other_fd < 0 ? 3 : 4, timeout_ms) < 0) {
      if (errno == EINTR) continue;
      throw zmq::error_t();
    }
    if (items[1].revents != 0) state_->count_peers();
    if (items[2].revents != 0) return Wake::stopped;
    if (items[0].revents != 0) return Wake::ready;
    if (other_fd >= 0 && items[3].revents != 0) return Wake::other;
    if (left.count() <= 0) return Wake::late;
  }
}

std::int32_t checked_count(std::string_view name, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) {
    throw ConfigError(std::string(name) + " is " + std::to_string(value) + "; expected 1 to " +
                      std::to_string(most));
  }
  return static_cast<std::int32_t>(value);
}

std::string seconds_text(Nanoseconds time) {
  std::string text = std::to_string(std::chrono::duration<double>(time).count());
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace penstock
