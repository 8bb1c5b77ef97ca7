// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/process_models/server.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/machine/event_fd.h"
#include "trainer/cluster/servers/sockets.h"

namespace penstock::cluster {
namespace {

/// Limit of replies queued for one reader; a reader sends one request at a time.
constexpr int kPendingReplies = 4;

ModelToken draw_token() {
  ModelToken token{};
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw Unavailable("drawing a token for the model server: the kernel gives no random bytes");
  }
  return token;
}

/// Memory of replies. libzmq returns it from one of its threads.
class ReplyMemory {
 public:
  struct Block {
    ReplyMemory* home;
    std::unique_ptr<float[]> elements;
    std::size_t size;
  };
  Block* take(std::size_t elements) {
    {
      const std::lock_guard lock(mutex_);
      const auto fits = [&](const auto& block) { return block->size >= elements; };
      const auto found = std::find_if(free_.begin(), free_.end(), fits);
      if (found != free_.end()) {
        Block* const block = found->release();
        free_.erase(found);
        return block;
      }
    }
    return new Block{this, std::make_unique<float[]>(elements), elements};  // NOLINT: libzmq's
  }
  static void give_back(void*, void* hint) noexcept {
    std::unique_ptr<Block> block(static_cast<Block*>(hint));
    ReplyMemory& home = *block->home;
    const std::lock_guard lock(home.mutex_);
    home.free_.push_back(std::move(block));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> free_;
};

/// Requests are far shorter.
constexpr SocketLimits kLimits{
    .frame = kTransportBytes, .queued = kPendingReplies, .watched = false, .linger = {}};

/// A wait ends at a request or at the end of the server.
constexpr Nanoseconds kForever = std::chrono::hours(1);

}  // namespace

struct ModelServer::State {
  State(PublishedModels& the_models, Counter& the_refused, const net::CurveSetup& network)
      : models(the_models), refused(the_refused), token(draw_token()), sockets(network, {}, 1) {
    endpoint = fmt::format("ipc://@penstock-models-{}-", getpid());
    for (const std::uint8_t byte : draw_token()) endpoint += fmt::format("{:02x}", byte);
    sockets.listen(endpoint, kLimits);
    if (network) {
      const std::string bound = sockets.endpoint(sockets.listen("tcp://0.0.0.0:*", kLimits));
      const char* const begin = bound.data() + bound.rfind(':') + 1;
      std::from_chars(begin, bound.data() + bound.size(), port);
      PENSTOCK_ASSERT(port != 0);
    }
    thread = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    thread.request_stop();
    wake.signal();
  }

  void run(const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) {
        Received message;
        while (!stop.stop_requested() && sockets.receive(message)) answer(message);
        if (!stop.stop_requested()) sockets.wait(kForever, wake);
      }
    } catch (...) {
      failure = std::current_exception();
      failed.store(true, std::memory_order_release);
    }
  }

  void answer(const Received& message) {
    try {
      if (message.frames > 2) return refused.add();
      const ServerHeader request = parse_header(message.header, message.data.bytes.size());
      if (request.kind != MessageKind::read_model ||
          !std::ranges::equal(message.data.bytes, std::as_bytes(std::span(token)))) {
        return refused.add();
      }
      reply(message, request);
    } catch (const DataError&) {
      refused.add();
    }
  }

  void reply(const Received& to, const ServerHeader& request) {
    ServerHeader header{.kind = MessageKind::no_model, .key = request.key, .step = request.step};
    const auto owner = static_cast<std::int32_t>(request.key);
    const std::optional<std::size_t> elements = models.elements(owner);
    if (!elements) return sockets.send(to.socket, to.peer, header, {}, nullptr);
    ReplyMemory::Block* const block = memory.take(*elements);
    const std::span<float> model(block->elements.get(), *elements);
    header.kind = MessageKind::model;
    header.version = static_cast<std::uint64_t>(models.copy_newest(owner, model));
    header.length = model.size_bytes();
    const Borrowed borrowed{ReplyMemory::give_back, block};
    sockets.send(to.socket, to.peer, header, std::as_bytes(model), &borrowed);
  }

  PublishedModels& models;
  Counter& refused;
  const ModelToken token;
  EventFd wake;
  ReplyMemory memory;      // outlives the sockets
  MessageSockets sockets;  // used only by the thread, once it runs
  std::string endpoint;
  std::uint16_t port = 0;  // 0: all processes are on this host
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
  std::jthread thread;  // last: it ends first
};

ModelServer::ModelServer(PublishedModels& models, Counter& refused,
                         const net::CurveSetup& network) {
  try {
    state_ = std::make_unique<State>(models, refused, network);
  } catch (const zmq::error_t& error) {
    throw Unavailable(std::string("opening the sockets of the model server: ") + error.what() +
                      "; is the process out of file descriptors?");
  }
}
ModelServer::~ModelServer() = default;

const std::string& ModelServer::local_endpoint() const noexcept { return state_->endpoint; }
std::uint16_t ModelServer::port() const noexcept { return state_->port; }
const ModelToken& ModelServer::token() const noexcept { return state_->token; }

void ModelServer::check() const {
  if (state_->failed.load(std::memory_order_acquire)) std::rethrow_exception(state_->failure);
}

}  // namespace penstock::cluster
