// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/shared_memory/pool_listener.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/net/shared_memory/unix_name.h"

namespace penstock::net {
namespace {

/// The number of connections that may wait for service.
constexpr int kBacklog = 16;
/// Time before another attempt if the process has no free descriptor.
constexpr int kRetryMilliseconds = 100;

[[noreturn]] void refuse(const char* call) {
  const int error = errno;
  throw ConfigError("cannot share memory: {}: {}; send without --shared-memory", call,
                    std::strerror(error));
}

std::string unguessable_name() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    refuse("getrandom");
  }
  std::string name = "@penstock-";
  for (const unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte / 16];
    name += "0123456789abcdef"[byte % 16];
  }
  return name;
}

/// Does nothing if the other side has gone.
void send_descriptor(int connection, int fd) {
  char byte = 1;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fd)> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  // A new connection has room for one byte.
  sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

struct PoolListener::State {
  State(int shared_fd, uid_t user)
      : fd(shared_fd), uid(user), socket(::socket(AF_UNIX, kSocketType, 0)) {
    if (!socket) refuse("socket");
    const std::optional<UnixAddress> address = abstract_address(name);
    PENSTOCK_ASSERT(address.has_value());
    if (bind(socket.get(), address->get(), address->bytes) != 0) refuse("bind");
    if (listen(socket.get(), kBacklog) != 0) refuse("listen");
    thread = std::jthread([this] { run(); });
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { stop.signal(); }

  void run() {
    bool starved = false;
    while (true) {
      pollfd items[] = {{stop.get(), POLLIN, 0}, {starved ? -1 : socket.get(), POLLIN, 0}};
      if (poll(items, 2, starved ? kRetryMilliseconds : -1) < 0 && errno != EINTR) return;
      if (items[0].revents != 0) return;
      const FileDescriptor connection(accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      starved = !connection && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
      if (!connection) continue;
      const std::optional<ucred> peer = credentials_of(connection.get());
      if (peer && peer->uid == uid) send_descriptor(connection.get(), fd);
    }
  }

  static constexpr int kSocketType = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
  const int fd;
  const uid_t uid;
  const std::string name = unguessable_name();
  EventFd stop;
  FileDescriptor socket;
  std::jthread thread;  // last: the thread ends first
};

PoolListener::PoolListener(int fd, uid_t uid) : state_(std::make_unique<State>(fd, uid)) {}
PoolListener::~PoolListener() = default;

const std::string& PoolListener::name() const noexcept { return state_->name; }

}  // namespace penstock::net
