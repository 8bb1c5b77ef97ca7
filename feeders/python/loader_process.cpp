// SPDX-License-Identifier: Apache-2.0
#include "feeders/python/loader_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <penstock_any_batch_py.h>
#include <penstock_feed_loader_py.h>
#include <penstock_loader_traits_py.h>
#include <penstock_loading_profile_py.h>
#include <penstock_worker_times_py.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "dataflow/error.h"
#include "dataflow/machine/kernel_file.h"

namespace penstock::python {
namespace {

constexpr std::size_t kMostPacket = 65536;
constexpr std::uint64_t kMostPool = std::uint64_t{1} << 36;  // bytes

std::string shell_word(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// A descriptor of this process's memory that holds the child's program.
FileDescriptor program_file() {
  FileDescriptor file(memfd_create("penstock-feed-loader", 0));
  std::string text;
  for (const std::string_view part :
       {kLoadingProfile, kWorkerTimes, kLoaderTraits, kAnyBatch, kFeedLoader}) {
    text += part;
  }
  if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      lseek(file.get(), 0, SEEK_SET) != 0) {
    throw ConfigError(std::string("cannot hand the loader its program: ") + std::strerror(errno));
  }
  return file;
}

/// "env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 'OMP_NUM_THREADS=1' ". Throws
/// ConfigError.
std::string environment_of(const LoaderCommand& command) {
  const std::string_view all = command.environment;
  std::string text =
      fmt::format("env RANK={} WORLD_SIZE={} LOCAL_RANK={} LOCAL_WORLD_SIZE={} ", command.rank,
                  command.ranks, command.local_rank, command.local_ranks);
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(',', begin), all.size());
    const std::string_view piece = all.substr(begin, end - begin);
    if (piece.find('=') == piece.npos || piece.front() == '=' || piece.front() == '-') {
      throw ConfigError("the loader's environment is '" + command.environment +
                        "'; expected NAME=VALUE,NAME=VALUE");
    }
    text += shell_word(std::string(piece)) + " ";
    begin = end + 1;
  }
  return text;
}

std::string command_of(const LoaderCommand& command, int program, int socket) {
  // Cores that control groups allow, at least 1; 0: any number.
  const std::optional<double> quota = cpu_quota("self");
  const int cores = quota ? static_cast<int>(std::clamp(*quota, 1.0, 1e6)) : 0;
  return fmt::format(
      "exec {}{} -u -c 'import sys; program = open(int(sys.argv.pop(1))).read(); "
      "exec(compile(program, \"<penstock>\", \"exec\"))' {} {} {} {} {} {} {} {} {} {} {}",
      environment_of(command), shell_word(command.python), program, socket,
      shell_word(command.loader), shell_word(command.arguments), shell_word(command.part),
      command.profiles, shell_word(command.pixels), shell_word(command.labels),
      shell_word(command.samples), shell_word(command.count), cores);
}

}  // namespace

LoaderProcess::LoaderProcess(const LoaderCommand& command)
    : command_(command), buffer_(kMostPacket) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw ConfigError(std::string("cannot open a socket for the loader: ") + std::strerror(errno));
  }
  socket_ = FileDescriptor(ends[0]);
  {
    // Closed again here, so that the connection ends when the child ends.
    const FileDescriptor childs(ends[1]), program = program_file();
    fcntl(childs.get(), F_SETFD, 0);
    process_ =
        std::make_unique<remote::ProducerProcess>(command_of(command, program.get(), childs.get()));
  }
  started_ = std::chrono::steady_clock::now();
}

void LoaderProcess::await_batch(Nanoseconds limit, const std::stop_token& stop) {
  const Time deadline = started_ + limit;
  pid_ = parse_start(await_packet("start", deadline, stop).bytes);
  batches_ = parse_batches(await_packet("yield a batch", deadline, stop).bytes);
  batches_.first_batch = std::chrono::steady_clock::now() - started_;
}

void LoaderProcess::share(std::size_t slots, std::size_t slot_bytes, Nanoseconds limit,
                          const std::stop_token& stop) {
  slot_bytes_ = slot_bytes;
  const std::array<std::uint64_t, 2> numbers{slots, slot_bytes};
  send(socket_.get(), numbers.data(), sizeof numbers, MSG_NOSIGNAL);
  const Time deadline = std::chrono::steady_clock::now() + limit;
  const Packet packet = await_packet("share its memory", deadline, stop);
  stride_ = parse_memory(packet.bytes, slot_bytes_);
  if (!packet.memory) throw DataError("the loader's process shared no memory for its batches");
  pool_ = std::make_shared<const net::MappedPool>(packet.memory, kMostPool);
  static_cast<void>(pool_->view(stride_ * (slots - 1), stride_));  // throws if it is too small
}

std::span<const std::byte> LoaderProcess::slot(std::uint32_t slot) const {
  return pool_->view(std::uint64_t{slot} * stride_, slot_bytes_);
}

std::optional<LoaderBatch> LoaderProcess::next() {
  const std::optional<Packet> packet = receive();
  if (!packet) return std::nullopt;
  if (std::optional<LoadProfile> profile = parse_profile(packet->bytes)) {
    profile_ = std::move(*profile);
    return std::nullopt;
  }
  if (std::optional<LoaderTraits> traits = parse_traits(packet->bytes)) {
    traits_ = std::move(*traits);
    return std::nullopt;
  }
  const LoaderBatch batch = parse_batch(packet->bytes, batches_, asked_);
  asked_.reset();
  return batch;
}

void LoaderProcess::ask(std::uint32_t slot) {
  asked_ = slot;
  // If the process has gone, receive() says so.
  send(socket_.get(), &slot, sizeof slot, MSG_NOSIGNAL);
}

void LoaderProcess::show_stacks() const noexcept {
  if (pid_ <= 1) return;
  const pid_t group = getpgid(pid_);  // workers too
  kill(group > 1 && group != getpgrp() ? -group : pid_, SIGUSR2);
}

/// False: the deadline passed.
bool LoaderProcess::wait(Time deadline, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { stopped_.signal(); });
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd items[] = {{socket_.get(), POLLIN, 0}, {stopped_.get(), POLLIN, 0}};
  poll(items, 2, static_cast<int>(std::min<std::int64_t>(left.count(), 1000)));
  if (stop.stop_requested()) throw Error("stopped while the loader was started");
  return true;
}

std::optional<LoaderProcess::Packet> LoaderProcess::receive() {
  iovec data{buffer_.data(), buffer_.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  // If the child ended without reading our last message, this is said first, and what it sent next.
  if (count < 0 && errno == ECONNRESET) {
    count = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  }
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (count <= 0) fail_ended();
  Packet packet;
  packet.bytes.assign(buffer_.data(), static_cast<std::size_t>(count));
  const cmsghdr* const part = CMSG_FIRSTHDR(&message);
  if (part != nullptr && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
    packet.memory = FileDescriptor(fd);
  }
  return packet;
}

LoaderProcess::Packet LoaderProcess::await_packet(const std::string& what, Time deadline,
                                                  const std::stop_token& stop) {
  while (true) {
    if (std::optional<Packet> packet = receive()) return std::move(*packet);
    if (wait(deadline, stop)) continue;
    show_stacks();
    poll(nullptr, 0, 200);  // until the stacks are printed
    throw TimeoutError(
        "the loader '{}' did not {} in time; its threads' stacks are above; raise start_timeout if "
        "it only needs longer",
        command_.loader, what);
  }
}

/// The child closed its end: it ends, or has ended.
void LoaderProcess::fail_ended() {
  pollfd ended{process_->fd(), POLLIN, 0};
  poll(&ended, 1, 1000);
  const bool has_ended = process_->status().has_value();
  std::string text = "the loader's process ";
  text += has_ended ? process_->describe_end() : "closed its connection";
  const int status = process_->status().value_or(0);
  if (status == 127 << 8) {
    throw ConfigError("{}: '{}' cannot be run; expected a Python interpreter", text,
                      command_.python);
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) {
    text +=
        ", a bus error: what it shares is larger than what is left of /dev/shm; enlarge that "
        "(docker run --shm-size=8g; Kubernetes: an emptyDir with medium: Memory, mounted at "
        "/dev/shm), or lower num_workers or the batch size";
  }
  throw DataError(text + "; its messages are above");
}

}  // namespace penstock::python
