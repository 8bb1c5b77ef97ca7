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
#include <thread>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/machine/event_fd.h"
#include "dataflow/net/zmq_monitor.h"

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

void set_limits(zmq::socket_t& socket) {
  // Requests are far shorter. Peers that send more are disconnected.
  net::bound_socket(socket.handle(), static_cast<std::int64_t>(kTransportBytes));
  socket.set(zmq::sockopt::sndhwm, kPendingReplies);
}

}  // namespace

struct ModelServer::State {
  State(PublishedModels& the_models, Counter& the_refused, const std::optional<Network>& network)
      : models(the_models), refused(the_refused), token(draw_token()), local(context, ZMQ_ROUTER) {
    set_limits(local);
    const ModelToken name = draw_token();
    endpoint = fmt::format("ipc://@penstock-models-{}-", getpid());
    for (const std::uint8_t byte : name) endpoint += fmt::format("{:02x}", byte);
    local.bind(endpoint);
    if (network) open_network(*network);
    thread = std::jthread([this] { run(); });
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { stop.signal(); }

  void open_network(const Network& network) {
    gate.emplace(context.handle(), net::Admission{.keys = network.admitted});
    remote = zmq::socket_t(context, ZMQ_ROUTER);
    set_limits(remote);
    gate->guard(remote.handle(), network.own);
    remote.bind("tcp://0.0.0.0:*");
    const std::string bound = remote.get(zmq::sockopt::last_endpoint);
    const char* const begin = bound.data() + bound.rfind(':') + 1;
    std::from_chars(begin, bound.data() + bound.size(), port);
    PENSTOCK_ASSERT(port != 0);
  }

  void run() {
    try {
      while (await()) {
      }
    } catch (...) {
      failure = std::current_exception();
      failed.store(true, std::memory_order_release);
    }
  }

  /// Waits for requests and answers one of each socket. False: the server ends.
  bool await() {
    zmq_pollitem_t items[] = {{local.handle(), 0, ZMQ_POLLIN, 0},
                              {nullptr, stop.get(), ZMQ_POLLIN, 0},
                              {remote.handle(), 0, ZMQ_POLLIN, 0}};
    if (zmq_poll(items, remote ? 3 : 2, -1) < 0) {
      if (zmq_errno() == EINTR) return true;
      throw zmq::error_t();
    }
    if (items[1].revents != 0) return false;
    if (items[0].revents != 0) answer(local);
    if (items[2].revents != 0) answer(remote);
    return true;
  }

  /// A message consists of the sender's name, which libzmq adds, and any bytes that the peer sent.
  void answer(zmq::socket_t& socket) {
    zmq::message_t sender, body;
    if (!socket.recv(sender, zmq::recv_flags::dontwait)) return;
    std::size_t frames = 0;
    for (bool more = sender.more(); more; ++frames) {
      zmq::message_t frame;
      if (!socket.recv(frame, zmq::recv_flags::dontwait)) break;
      more = frame.more();
      if (frames == 0) body = std::move(frame);
    }
    const auto request = parse_model_message<ModelRequest>({body.data<std::byte>(), body.size()});
    if (frames != 1 || !request || request->token != token) return refused.add();
    reply(socket, sender, *request);
  }

  void reply(zmq::socket_t& socket, zmq::message_t& sender, const ModelRequest& request) {
    ModelReply header{.owner = request.owner, .number = request.number};
    const std::optional<std::size_t> elements = models.elements(request.owner);
    zmq::message_t model;
    if (elements) {
      ReplyMemory::Block* const block = memory.take(*elements);
      model.rebuild(block->elements.get(), *elements * sizeof(float), ReplyMemory::give_back,
                    block);
      header.version = models.copy_newest(request.owner, {block->elements.get(), *elements});
      header.elements = *elements;
    }
    // If the reader is gone, libzmq drops all frames.
    const auto last = zmq::send_flags::dontwait, more = last | zmq::send_flags::sndmore;
    socket.send(sender, more);
    socket.send(zmq::buffer(&header, sizeof header), elements ? more : last);
    if (elements) socket.send(model, last);
  }

  PublishedModels& models;
  Counter& refused;
  const ModelToken token;
  EventFd stop;
  ReplyMemory memory;  // outlives the context
  zmq::context_t context;
  std::optional<net::CurveGate> gate;
  zmq::socket_t local, remote;  // remote: unset if all processes are on this host
  std::string endpoint;
  std::uint16_t port = 0;
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
  std::jthread thread;  // last: it ends first
};

ModelServer::ModelServer(PublishedModels& models, Counter& refused,
                         const std::optional<Network>& network) {
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
