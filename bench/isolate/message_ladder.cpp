// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/message_ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "bench/config/flags.h"
#include "bench/run/processes/child_process.h"
#include "dataflow/error.h"
#include "dataflow/net/zmq_endpoint.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"
#include "feeders/remote/wire/batch_message.h"
#include "trainer/cluster/liveness/frame_socket.h"

namespace penstock::isolate {
namespace {

/// Options of the consumer about its producers, which the ladder's rungs set.
constexpr std::array<std::string_view, 8> kSetByTransport = {
    "endpoint",     "bind",        "producer",         "producers",
    "curve_secret", "curve_allow", "curve_server_key", "insecure"};

/// A port of this machine that was free a moment ago.
std::uint16_t free_port() {
  try {
    return liveness::FrameListener::tcp(/*loopback=*/true).port();
  } catch (const Unavailable&) {
    throw ConfigError("the ladder found no free TCP port on 127.0.0.1");
  }
}

/// The kind of the feeder's first endpoint.
net::Endpoint::Kind kind_of(const ComponentText& feeder) {
  std::string text = value_of(feeder, "endpoint").value_or("");
  for (const std::string_view way : {"bind:", "connect:"}) {
    if (text.starts_with(way)) text.erase(0, way.size());
  }
  if (text.starts_with("tcp://")) return net::Endpoint::Kind::tcp;
  return text.starts_with("ipc://@") ? net::Endpoint::Kind::abstract : net::Endpoint::Kind::file;
}

/// The format that the user asks for; framed if there is none.
remote::MessageFormat format_of(const ComponentText& feeder) {
  const auto asked = remote::message_format_of(value_of(feeder, "format").value_or("framed"));
  return asked.value_or(remote::MessageFormat::framed);
}

/// The keys of both ends, as options and flags.
struct LadderKeys {
  std::vector<std::pair<std::string, std::string>> of_consumer;  // options
  std::string of_producer;                                       // flags
};

LadderKeys make_keys(const MessageLadder& ladder) {
  for (const char* name : {"consumer", "producer"}) {
    ChildProcess keygen({.arguments = {ladder.program, "keygen", "--out=" + ladder.folder.native(),
                                       std::string("--name=") + name},
                         .timeout = std::chrono::seconds(20)});
    const ChildExit& exit = keygen.wait();
    if (exit.cause != ChildExit::Cause::ended || exit.code != 0) {
      throw ConfigError("the ladder's keys could not be made: penstock keygen " + exit.describe());
    }
  }
  const auto file = [&](const char* name) { return (ladder.folder / name).native(); };
  return {{{"curve_secret", file("consumer.key_secret")}, {"curve_allow", file("producer.key")}},
          fmt::format(" --curve-secret {} --curve-server-key {}",
                      shell_word(file("producer.key_secret")), shell_word(file("consumer.key")))};
}

class MessageRungs {
 public:
  MessageRungs(const RunConfig& base, const MessageLadder& ladder)
      : base_(base), ladder_(ladder), feeder_(parse_component(base.fake_location)) {}

  std::vector<LadderRung> make() {
    add("gpu", "nothing: batches are on the device", "gpu").is_ceiling = true;
    add("host", "the copy to the device", "host");
    add_memory();
    add_transport();
    if (value_of(feeder_, "endpoint") || value_of(feeder_, "producer")) {
      add("your producers", "batches that cost something to make", base_.fake_location).part =
          Side::producer;
    }
    for (LadderRung& rung : rungs_) complete_rung(rung);
    return std::move(rungs_);
  }

 private:
  LadderRung& add(std::string name, std::string adds, std::string feeder) {
    return add_rung(rungs_, base_, std::move(name), std::move(adds), std::move(feeder));
  }

  void add_memory() {
    ComponentText memory{"messages", {}};
    memory.values.emplace_back("format", to_string(format_of(feeder_)));
    if (const auto receivers = value_of(feeder_, "receivers")) {
      memory.values.emplace_back("receivers", *receivers);
    }
    LadderRung& rung = add("messages in memory", "the consumer: checks, and the copy into a slot",
                           component_text(memory));
    rung.part = Side::consumer;
    if (is_on(feeder_, "encoded")) {
      rung.unavailable = "image files are decoded: measure that with --fake-location queue";
    }
  }

  void add_transport() {
    ComponentText consumer{feeder_.name, {}};
    for (const auto& [key, value] : feeder_.values) {
      const bool is_set = std::ranges::find(kSetByTransport, key) != kSetByTransport.end();
      const bool is_kept = key.starts_with("curve_") || key == "bind" || key == "insecure";
      if (!is_set || (!ladder_.endpoint.empty() && is_kept)) {
        consumer.values.emplace_back(key, value);
      }
    }
    std::string adds;
    if (ladder_.endpoint.empty()) {
      adds = serve_here(consumer);
    } else {
      consumer.values.emplace_back("endpoint", ladder_.endpoint);
      adds = "the network: constant batches from " + ladder_.endpoint;
    }
    LadderRung& rung = add("over the transport", std::move(adds), component_text(consumer));
    rung.part = Side::network;
    rung.own_producer = ladder_.endpoint.empty();
  }

  /// Adds the options that make the consumer start a producer; returns its description.
  std::string serve_here(ComponentText& consumer) {
    const net::Endpoint::Kind kind = kind_of(feeder_);
    const std::string path = (ladder_.folder / "ladder").native();
    std::string endpoint =
        fmt::format("ipc://{}{}", kind == net::Endpoint::Kind::abstract ? "@" : "", path);
    if (kind == net::Endpoint::Kind::tcp) endpoint = fmt::format("tcp://127.0.0.1:{}", free_port());
    consumer.values.emplace_back("endpoint", endpoint);
    consumer.values.emplace_back("bind", "true");
    std::string command = serve_command(endpoint);
    const bool has_keys = value_of(feeder_, "curve_secret").has_value();
    if (has_keys) {
      LadderKeys keys = make_keys(ladder_);
      for (auto& option : keys.of_consumer) consumer.values.push_back(std::move(option));
      command += keys.of_producer;
    }
    consumer.values.emplace_back("producer", command);
    return fmt::format(
        "the transport: constant batches of a `penstock serve` on this machine, over {}{}{}",
        kind == net::Endpoint::Kind::tcp ? "tcp://127.0.0.1" : "ipc://",
        has_keys ? " with keys" : "", kind == net::Endpoint::Kind::tcp ? "; no wire is in it" : "");
  }

  std::string serve_command(const std::string& endpoint) const {
    const bool encoded = is_on(feeder_, "encoded");
    std::string command = fmt::format(
        "exec {} serve --fake-location {} --model {} --batch-size {} --image-size {} --classes {} "
        "--endpoint {} --hwm {}",
        shell_word(ladder_.program), encoded ? "queue" : "host", base_.model, base_.batch_size,
        base_.image_size, base_.classes, shell_word(endpoint),
        value_of(feeder_, "hwm").value_or("8"));
    if (encoded) {
      command += " --encoded";
      return base_.data_dir.empty() ? command
                                    : command + " --data-dir " + shell_word(base_.data_dir);
    }
    if (is_on(feeder_, "shared_memory")) return command + " --shared-memory";
    if (is_on(feeder_, "credit")) return command + " --credit";
    return command + fmt::format(" --format {}", to_string(format_of(feeder_)));
  }

  const RunConfig& base_;
  const MessageLadder& ladder_;
  const ComponentText feeder_;
  std::vector<LadderRung> rungs_;
};

}  // namespace

std::vector<LadderRung> message_rungs(const RunConfig& base, const MessageLadder& ladder) {
  return MessageRungs(base, ladder).make();
}

}  // namespace penstock::isolate
