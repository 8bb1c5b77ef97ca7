// SPDX-License-Identifier: Apache-2.0
// Measures bare memcpy and bare libzmq: upper limits for the rate of feeding over ZeroMQ.
// transport_rates.py runs them in turns with Penstock. memcpy and pull print one line of JSON.
//
//   penstock_zmq_limit memcpy [bytes=N] [slots=3] [seconds=5]
//   penstock_zmq_limit push endpoint=E message=FILE [rate=BATCHES_PER_S] [stamp=true]
//   penstock_zmq_limit pull endpoint=E [slots=3] [seconds=5] [malloc=default|keep] [stamp=true]
//
// push connects and sends the file's bytes from hwm + 2 buffers without a copy until SIGTERM. pull
// binds, and copies each message once into recycled slots. stamp: the last 8 bytes of a message are
// its send time. Options of both: hwm=8, buffer=BYTES (of the kernel; 0: its default),
// io_threads=1, and keys for CURVE: server_key=Z85 public_key=Z85 secret_key=Z85 (pull is the
// server and needs only secret_key).
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "bench/record/machine.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<char>;

constexpr std::size_t kStamp = sizeof(std::int64_t);

/// The settings of key=value words.
class Settings {
 public:
  Settings(int count, char** words) {
    for (int i = 0; i < count; ++i) {
      const std::string word = words[i];
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos) throw std::runtime_error("'" + word + "' is not KEY=VALUE");
      values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  std::string text(const std::string& key, const std::string& fallback = "") {
    const auto found = values_.extract(key);
    return found.empty() ? fallback : found.mapped();
  }
  double number(const std::string& key, double fallback) {
    const std::string value = text(key);
    return value.empty() ? fallback : std::stod(value);
  }
  std::size_t count(const std::string& key, std::size_t fallback) {
    const std::string value = text(key);
    return value.empty() ? fallback : std::stoul(value);
  }
  /// Call this after all settings were read: an unread one is a typing error.
  void check_all_used() const {
    if (!values_.empty()) throw std::runtime_error("unknown key " + values_.begin()->first);
  }

 private:
  std::map<std::string, std::string> values_;
};

std::int64_t now_ns() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

/// A measured window of a given time and of a few batches at least, after some warm-up batches.
class Window {
 public:
  Window(std::size_t warm_up, double seconds) : warm_up_(warm_up), seconds_(seconds) {}

  /// Call this after each batch. False: the window is over.
  bool lap() {
    if (count_++ < warm_up_) {
      start_ = Clock::now();
      getrusage(RUSAGE_SELF, &before_);
      cpu_s_ = process_cpu_seconds();
      return true;
    }
    end_ = Clock::now();
    return count_ < warm_up_ + kFewest || end_ - start_ < std::chrono::duration<double>(seconds_);
  }
  /// True if the batch that ends with the next lap() counts.
  bool open() const { return count_ >= warm_up_; }

  /// The members of a JSON object.
  std::string json() const {
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    return fmt::format(
        R"("batches":{},"seconds":{},"cpu_s":{},"minor_faults":{},"voluntary_switches":{},)"
        R"("involuntary_switches":{})",
        count_ - warm_up_, std::chrono::duration<double>(end_ - start_).count(),
        process_cpu_seconds() - cpu_s_, after.ru_minflt - before_.ru_minflt,
        after.ru_nvcsw - before_.ru_nvcsw, after.ru_nivcsw - before_.ru_nivcsw);
  }

 private:
  static constexpr std::size_t kFewest = 5;
  const std::size_t warm_up_;
  const double seconds_;
  std::size_t count_ = 0;
  Clock::time_point start_, end_;
  rusage before_{};
  double cpu_s_ = 0;
};

/// Slots whose pages are touched before the clock starts.
std::vector<Bytes> touched(std::size_t count, std::size_t bytes) {
  return std::vector<Bytes>(count, Bytes(bytes, 'p'));
}

void copy_alone(Settings& settings) {
  const std::size_t bytes = settings.count("bytes", 64 * 224 * 224 * 3 + 256);
  std::vector<Bytes> slots = touched(settings.count("slots", 3), bytes);
  Window window(slots.size(), settings.number("seconds", 5));
  settings.check_all_used();
  // As many source buffers as bare libzmq would have messages waiting.
  const std::vector<Bytes> sources = touched(10, bytes);
  std::size_t turn = 0;
  do {
    Bytes& slot = slots[turn % slots.size()];
    std::memcpy(slot.data(), sources[turn % sources.size()].data(), bytes);
    ++turn;
  } while (window.lap());
  fmt::print("{{{}}}\n", window.json());
}

/// Makes the kernel buffer more of each connection between processes of one machine. ZMQ_SNDBUF of
/// libzmq does this for TCP only.
class Connections {
 public:
  Connections(zmq::context_t& context, zmq::socket_t& socket, std::int64_t send_buffer)
      : send_buffer_(send_buffer), events_(context, ZMQ_PAIR) {
    zmq_socket_monitor(socket.handle(), "inproc://events", ZMQ_EVENT_CONNECTED);
    events_.connect("inproc://events");
  }
  void look() {
    zmq::message_t event, address;
    while (events_.recv(event, zmq::recv_flags::dontwait)) {
      std::int32_t connection = -1;
      std::memcpy(&connection, event.data<char>() + sizeof(std::uint16_t), sizeof connection);
      static_cast<void>(events_.recv(address, zmq::recv_flags::dontwait));
      if (send_buffer_ > 0) remote::enlarge_send_buffer(connection, send_buffer_);
    }
  }

 private:
  const std::int64_t send_buffer_;
  zmq::socket_t events_;
};

struct Connection {
  Connection(Settings& settings, int type)
      : hwm(settings.count("hwm", 8)),
        buffer(static_cast<int>(settings.count("buffer", 0))),
        context(static_cast<int>(settings.count("io_threads", 1))),
        socket(context, type),
        connections(context, socket, buffer) {
    socket.set(zmq::sockopt::sndhwm, static_cast<int>(hwm));
    socket.set(zmq::sockopt::rcvhwm, static_cast<int>(hwm));
    socket.set(zmq::sockopt::immediate, 1);
    socket.set(zmq::sockopt::linger, 0);
    if (buffer > 0) {
      socket.set(zmq::sockopt::sndbuf, buffer);
      socket.set(zmq::sockopt::rcvbuf, buffer);
    }
    const std::string endpoint = settings.text("endpoint");
    const std::string server_key = settings.text("server_key"),
                      public_key = settings.text("public_key"),
                      secret_key = settings.text("secret_key");
    if (!secret_key.empty()) socket.set(zmq::sockopt::curve_secretkey, secret_key);
    if (!public_key.empty()) socket.set(zmq::sockopt::curve_publickey, public_key);
    if (!server_key.empty()) socket.set(zmq::sockopt::curve_serverkey, server_key);
    if (type == ZMQ_PULL) {
      if (!secret_key.empty()) socket.set(zmq::sockopt::curve_server, true);
      socket.bind(endpoint);
    } else {
      socket.connect(endpoint);
    }
  }
  const std::size_t hwm;
  const int buffer;
  zmq::context_t context;
  zmq::socket_t socket;
  Connections connections;
};

/// Buffers that libzmq returns when their bytes are in the kernel.
class Pool {
 public:
  Pool(std::size_t count, const Bytes& content) : buffers_(count, content) {
    for (Bytes& buffer : buffers_) free_.push_back(&buffer);
  }
  /// nullptr if no buffer is free within a tenth of a second.
  Bytes* take() {
    std::unique_lock lock(mutex_);
    if (!given_back_.wait_for(lock, std::chrono::milliseconds(100), [&] { return !free_.empty(); }))
      return nullptr;
    Bytes* const buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void give_back(Bytes* buffer) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(buffer);
    }
    given_back_.notify_one();
  }
  Bytes* buffer_at(const void* data) {
    for (Bytes& buffer : buffers_) {
      if (buffer.data() == data) return &buffer;
    }
    return nullptr;
  }

 private:
  std::vector<Bytes> buffers_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::vector<Bytes*> free_;  // under mutex_
};

volatile sig_atomic_t stopped = 0;

void push(Settings& settings) {
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  sigaction(SIGTERM, &action, nullptr);
  std::ifstream file(settings.text("message"), std::ios::binary);
  const Bytes content{std::istreambuf_iterator<char>(file), {}};
  if (content.size() < kStamp) throw std::runtime_error("message=FILE has no message");
  const double rate = settings.number("rate", 0);
  const bool stamp = settings.text("stamp") == "true";
  std::size_t sent = 0;
  std::unique_ptr<Pool> pool;  // must outlive the socket
  {
    Connection connection(settings, ZMQ_PUSH);
    settings.check_all_used();
    pool = std::make_unique<Pool>(connection.hwm + 2, content);
    connection.socket.set(zmq::sockopt::sndtimeo, 100);
    Clock::time_point due = Clock::now();
    while (stopped == 0) {
      connection.connections.look();
      Bytes* const buffer = pool->take();
      if (buffer == nullptr) continue;
      if (rate > 0) {
        std::this_thread::sleep_until(due);
        due = std::max(due, Clock::now()) +
              std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / rate));
      }
      if (stamp) {
        const std::int64_t time = now_ns();
        std::memcpy(buffer->data() + buffer->size() - kStamp, &time, kStamp);
      }
      zmq::message_t message(
          buffer->data(), buffer->size(),
          [](void* data, void* hint) {
            Pool& owner = *static_cast<Pool*>(hint);
            owner.give_back(owner.buffer_at(data));
          },
          pool.get());
      while (stopped == 0) {
        // The C interface, because there a signal does not throw.
        if (zmq_msg_send(message.handle(), connection.socket.handle(), 0) >= 0) {
          ++sent;
          break;
        }
        if (errno != EAGAIN && errno != EINTR) throw zmq::error_t();
        connection.connections.look();
      }
    }
  }
  fmt::print(stderr, "penstock_zmq_limit: sent {} batches\n", sent);
}

double quantile(std::vector<double>& values, double part) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

void pull(Settings& settings) {
  const bool stamp = settings.text("stamp") == "true";
  const bool keep = settings.text("malloc", "default") == "keep";
  const std::size_t count = settings.count("slots", 3);
  const double seconds = settings.number("seconds", 5);
  Connection connection(settings, ZMQ_PULL);
  settings.check_all_used();
  connection.socket.set(zmq::sockopt::rcvtimeo, 30'000);
  // The warm-up is more than both sockets can store.
  Window window(3 * connection.hwm + 10, seconds);
  std::vector<Bytes> slots;
  std::vector<double> latency_ms;
  zmq::message_t message;
  std::size_t turn = 0;
  do {
    if (!connection.socket.recv(message)) throw std::runtime_error("nothing came within 30 s");
    if (slots.empty()) {
      slots = touched(count, message.size());
      if (keep) remote::keep_message_memory(message.size());
    }
    Bytes& slot = slots[turn++ % slots.size()];
    std::memcpy(slot.data(), message.data(), std::min(message.size(), slot.size()));
    if (stamp && window.open()) {
      std::int64_t time = 0;
      std::memcpy(&time, slot.data() + slot.size() - kStamp, kStamp);
      latency_ms.push_back(1e-6 * static_cast<double>(now_ns() - time));
    }
  } while (window.lap());
  std::string latency;
  if (stamp) {
    latency = fmt::format(R"(,"latency_ms_median":{},"latency_ms_p99":{})",
                          quantile(latency_ms, 0.5), quantile(latency_ms, 0.99));
  }
  fmt::print("{{{}{},\"libzmq\":\"{}.{}.{}\"}}\n", window.json(), latency, ZMQ_VERSION_MAJOR,
             ZMQ_VERSION_MINOR, ZMQ_VERSION_PATCH);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    const std::string mode = argc > 1 ? argv[1] : "";
    penstock::Settings settings(std::max(argc - 2, 0), argv + std::min(argc, 2));
    if (mode == "memcpy") {
      penstock::copy_alone(settings);
    } else if (mode == "push") {
      penstock::push(settings);
    } else if (mode == "pull") {
      penstock::pull(settings);
    } else {
      throw std::runtime_error(fmt::format("'{}' is none of memcpy, push, pull", mode));
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "penstock_zmq_limit: {}\n", error.what());
    return 2;
  }
}
