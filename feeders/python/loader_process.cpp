// SPDX-License-Identifier: Apache-2.0
#include "feeders/python/loader_process.h"

#include <fcntl.h>
#include <penstock_feed_loader_py.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "dataflow/error.h"

namespace penstock::python {
namespace {

using nlohmann::json;

constexpr std::size_t kMostPacket = 65536;
constexpr std::size_t kMostNotes = 8;
constexpr std::int32_t kMostImages = 65536, kMostSide = 16384;
constexpr std::uint64_t kMostPool = std::uint64_t{1} << 36;  // bytes
constexpr std::int32_t kMostWorkers = 65536;
constexpr std::uint32_t kFirstOfEpoch = 1, kPartial = 2;
constexpr std::pair<std::string_view, DType> kPixels[] = {{"uint8", DType::u8},
                                                          {"float16", DType::f16},
                                                          {"bfloat16", DType::bf16},
                                                          {"float32", DType::f32}};

/// A batch as the child sends it (BATCH in feed_loader.py).
struct BatchPacket {
  std::uint32_t slot, images, flags, reserved;
  std::int64_t get_ns, convert_ns, room_ns, get_cpu_ns;
  std::int64_t load_ns, load_cpu_ns, collate_ns;
};
static_assert(sizeof(BatchPacket) == 72);

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// A descriptor of this process's memory that holds the child's program.
FileDescriptor program_file() {
  FileDescriptor file(memfd_create("penstock-feed-loader", 0));
  const std::string_view text = kFeedLoader;
  if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      lseek(file.get(), 0, SEEK_SET) != 0) {
    throw ConfigError(std::string("cannot hand the loader its program: ") + std::strerror(errno));
  }
  return file;
}

/// "env 'OMP_NUM_THREADS=1' ". Throws ConfigError.
std::string environment_of(const LoaderCommand& command) {
  const std::string_view all = command.environment;
  std::string text = all.empty() ? "" : "env ";
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(',', begin), all.size());
    const std::string_view piece = all.substr(begin, end - begin);
    if (piece.find('=') == piece.npos || piece.front() == '=' || piece.front() == '-') {
      throw ConfigError("the loader's environment is '" + command.environment +
                        "'; expected NAME=VALUE,NAME=VALUE");
    }
    text += quoted(std::string(piece)) + " ";
    begin = end + 1;
  }
  return text;
}

std::string command_of(const LoaderCommand& command, int program, int socket) {
  return "exec " + environment_of(command) + quoted(command.python) +
         " -u -c 'import sys; exec(compile(open(int(sys.argv.pop(1))).read(), \"<penstock>\", "
         "\"exec\"))' " +
         std::to_string(program) + " " + std::to_string(socket) + " " + quoted(command.loader) +
         " " + quoted(command.arguments) + " " + quoted(command.part);
}

/// The string of that name; empty: none.
std::string word(const json& value, const char* name) {
  const auto found = value.find(name);
  return found != value.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool flag(const json& value, const char* name) {
  const auto found = value.find(name);
  return found != value.end() && found->is_boolean() && found->get<bool>();
}

json parse(const std::string& bytes) {
  json value = json::parse(bytes, nullptr, false);
  if (!value.is_object()) throw DataError("the loader's process sent what is no message of it");
  const std::string error = word(value, "error"), trace = word(value, "traceback");
  if (!trace.empty()) throw DataError(error + ":\n" + trace);
  if (!error.empty()) throw ConfigError(error);
  return value;
}

std::int64_t integer(const json& value, const char* name, std::int64_t least, std::int64_t most) {
  const auto found = value.find(name);
  if (found == value.end() || !found->is_number_integer() || found->get<std::int64_t>() < least ||
      found->get<std::int64_t>() > most) {
    throw ConfigError(std::string("the loader's ") + name + " is " +
                      (found == value.end() ? "missing" : found->dump()) + "; expected " +
                      std::to_string(least) + " to " + std::to_string(most));
  }
  return found->get<std::int64_t>();
}

LoaderBatches read_batches(const json& hello) {
  LoaderBatches batches;
  const auto read = [&](const char* name, std::int64_t most) {
    return static_cast<std::int32_t>(integer(hello, name, 1, most));
  };
  batches.images = read("images", kMostImages);
  batches.image = {read("height", kMostSide), read("width", kMostSide), read("channels", 4)};
  const std::string pixels = word(hello, "pixels");
  const auto known =
      std::ranges::find_if(kPixels, [&](const auto& pair) { return pair.first == pixels; });
  if (known == std::end(kPixels)) throw ConfigError("the loader's pixels are " + pixels);
  batches.pixel = known->second;
  batches.planar = flag(hello, "planar");
  batches.has_labels = flag(hello, "labels");
  batches.python = word(hello, "python");
  const auto workers = static_cast<std::int32_t>(integer(hello, "workers", -1, kMostWorkers));
  if (workers >= 0) batches.workers = workers;
  if (const auto notes = hello.find("notes"); notes != hello.end() && notes->is_array()) {
    for (const json& note : *notes) {
      if (note.is_string() && batches.notes.size() < kMostNotes) batches.notes.push_back(note);
    }
  }
  return batches;
}

}  // namespace

std::size_t LoaderBatches::bytes() const noexcept {
  return static_cast<std::size_t>(images) *
         (image.elements() * size_of(pixel) + sizeof(std::int32_t));
}

LoaderProcess::LoaderProcess(const LoaderCommand& command, Nanoseconds limit,
                             const std::stop_token& stop)
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
  const Time begin = std::chrono::steady_clock::now(), deadline = begin + limit;
  pid_ = static_cast<std::int32_t>(
      integer(parse(await_packet("start", deadline, stop).bytes), "pid", 1, INT32_MAX));
  batches_ = read_batches(parse(await_packet("yield a batch", deadline, stop).bytes));
  batches_.first_batch = std::chrono::steady_clock::now() - begin;
}

void LoaderProcess::share(std::size_t slots, Nanoseconds limit, const std::stop_token& stop) {
  slots_ = static_cast<std::uint32_t>(slots);
  send(socket_.get(), &slots_, sizeof slots_, MSG_NOSIGNAL);
  const Time deadline = std::chrono::steady_clock::now() + limit;
  const Packet packet = await_packet("share its memory", deadline, stop);
  const json reply = parse(packet.bytes);
  stride_ = static_cast<std::size_t>(integer(reply, "stride", 4096, std::int64_t{1} << 34));
  if (!packet.memory || stride_ < batches_.bytes() || stride_ % 4096 != 0) {
    throw DataError("the loader's process shared no memory for its batches");
  }
  pool_ = std::make_shared<const net::MappedPool>(packet.memory, kMostPool);
  static_cast<void>(pool_->view(stride_ * (slots - 1), stride_));  // throws if it is too small
  with_loader_.assign(slots, true);
}

std::span<const std::byte> LoaderProcess::slot(std::uint32_t slot) const {
  return pool_->view(std::uint64_t{slot} * stride_, batches_.bytes());
}

std::optional<LoaderBatch> LoaderProcess::next() {
  const std::optional<Packet> packet = receive();
  if (!packet) return std::nullopt;
  BatchPacket sent{};
  if (packet->bytes.size() != sizeof sent) {
    static_cast<void>(parse(packet->bytes));  // throws what the loader says
    throw DataError("the loader's process sent what is no batch");
  }
  std::memcpy(&sent, packet->bytes.data(), sizeof sent);
  LoaderBatch batch{
      .slot = sent.slot,
      .images = static_cast<std::int32_t>(std::min<std::uint32_t>(sent.images, kMostImages)),
      .is_partial = (sent.flags & kPartial) != 0,
      .begins_epoch = (sent.flags & kFirstOfEpoch) != 0};
  static constexpr std::int64_t kMost = std::int64_t{1} << 50;  // 13 days; sums do not overflow
  const auto duration = [](std::int64_t ns) {
    return Nanoseconds(std::clamp<std::int64_t>(ns, 0, kMost));
  };
  batch.getting = duration(sent.get_ns);
  batch.converting = duration(sent.convert_ns);
  batch.waiting = duration(sent.room_ns);
  batch.getting_cpu = duration(sent.get_cpu_ns);
  batch.loading = duration(sent.load_ns);
  batch.loading_cpu = duration(sent.load_cpu_ns);
  batch.collating = duration(sent.collate_ns);
  if (batch.is_partial) return batch;
  if (batch.slot >= slots_ || !with_loader_[batch.slot] || batch.images != batches_.images) {
    throw DataError("the loader's process sent a batch of " + std::to_string(sent.images) +
                    " images in slot " + std::to_string(sent.slot) + ", which it must not use");
  }
  with_loader_[batch.slot] = false;
  return batch;
}

void LoaderProcess::give_back(std::uint32_t slot) {
  with_loader_[slot] = true;
  // If the process has gone, receive() says so.
  send(socket_.get(), &slot, sizeof slot, MSG_NOSIGNAL);
}

void LoaderProcess::show_stacks() const noexcept {
  if (pid_ > 1) kill(pid_, SIGUSR2);
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
  const ssize_t count = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
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
    throw TimeoutError("the loader '" + command_.loader + "' did not " + what +
                       " in time; its threads' stacks are above; raise start_timeout if it only "
                       "needs longer");
  }
}

/// The child closed its end: it ends, or has ended.
void LoaderProcess::fail_ended() {
  pollfd ended{process_->fd(), POLLIN, 0};
  poll(&ended, 1, 1000);
  const bool has_ended = process_->status().has_value();
  std::string text = "the loader's process ";
  text += has_ended ? process_->describe_end() : "closed its connection";
  if (process_->status().value_or(0) == 127 << 8) {
    throw ConfigError(text + ": '" + command_.python +
                      "' cannot be run; expected a Python interpreter");
  }
  throw DataError(text + "; its messages are above");
}

}  // namespace penstock::python
