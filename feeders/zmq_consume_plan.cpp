// SPDX-License-Identifier: Apache-2.0
#include "feeders/zmq_consume_plan.h"

#include <algorithm>
#include <climits>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/wire/zmq_op.h"

namespace penstock {
namespace {

constexpr std::string_view kBind = "bind:", kConnect = "connect:";
constexpr std::string_view kBeginnings[] = {kBind, kConnect, "ipc://", "tcp://"};

/// Room for messages of the wrong type or size, which are then named instead of cut off.
std::uint64_t default_max_message(std::uint64_t batch) {
  return 4 * batch + (std::uint64_t{64} << 10);
}

std::uint64_t batch_bytes(const BatchSpec& spec) { return BatchLayout(spec, spec.images).size(); }

ZmqSocketOptions socket_options(const Options& options, const BatchSpec& spec) {
  const std::uint64_t max_message = options.text("max_message") == "auto"
                                        ? default_max_message(batch_bytes(spec))
                                        : options.bytes("max_message");
  if (max_message < batch_bytes(spec)) {
    throw ConfigError("zmq-consume:max_message is " + options.text("max_message") +
                      "; a batch has " + std::to_string(batch_bytes(spec)) + " bytes");
  }
  return {.role = ZmqSocketOptions::Role::pull,
          .insecure = options.flag("insecure"),
          .curve = read_curve({.secret = options.text("curve_secret"),
                               .server_key = options.text("curve_server_key"),
                               .allow = options.text("curve_allow")}),
          .hwm = checked_count("zmq-consume:hwm", options.integer("hwm"), INT_MAX),
          .max_message = static_cast<std::int64_t>(max_message),
          .io_threads = checked_count("zmq-consume:io_threads", options.integer("io_threads"), 64)};
}

/// Empty: messages say it themselves.
std::optional<MessageFormat> declared_format(const Options& options) {
  const std::string& text = options.text("format");
  if (canonical_name(text) == "auto") return std::nullopt;
  const std::optional<MessageFormat> format = message_format_of(text);
  if (format) return format;
  throw ConfigError("zmq-consume:format is '" + text +
                    "'; expected auto, zmq_op, pickle, msgpack or numpy-frames");
}

/// Where the '+' is behind which the next endpoint begins.
std::size_t end_of_endpoint(std::string_view text) {
  for (std::size_t plus = text.find('+'); plus != text.npos; plus = text.find('+', plus + 1)) {
    const std::string_view rest = text.substr(plus + 1);
    if (std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                    [&](std::string_view beginning) { return rest.starts_with(beginning); })) {
      return plus;
    }
  }
  return text.npos;
}

ConsumeEndpoint parse_one(std::string_view text, bool bind) {
  for (const std::string_view way : {kBind, kConnect}) {
    if (!text.starts_with(way)) continue;
    text.remove_prefix(way.size());
    bind = way == kBind;
    break;
  }
  return {parse_endpoint(text), bind};
}

}  // namespace

std::vector<ConsumeEndpoint> parse_endpoints(std::string_view text, bool bind) {
  std::vector<ConsumeEndpoint> endpoints;
  while (true) {
    const std::size_t end = end_of_endpoint(text);
    const ConsumeEndpoint next = parse_one(text.substr(0, end), bind);
    const bool twice = std::any_of(endpoints.begin(), endpoints.end(), [&](const auto& known) {
      return known.endpoint.text == next.endpoint.text;
    });
    if (twice) throw ConfigError("zmq-consume:endpoint names " + next.endpoint.text + " twice");
    endpoints.push_back(next);
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  if (endpoints.size() > ZmqSocket::kMostTogether) {
    throw ConfigError("zmq-consume:endpoint names " + std::to_string(endpoints.size()) +
                      "; expected at most " + std::to_string(ZmqSocket::kMostTogether));
  }
  return endpoints;
}

ConsumePlan read_consume_plan(const Options& options, const BatchSpec& spec) {
  if (spec.pixel != DType::u8 || spec.normalised) {
    throw ConfigError("zmq-consume receives uint8 pixels; this run wants another type");
  }
  return {.endpoints = parse_endpoints(options.text("endpoint"), options.flag("bind")),
          .socket = socket_options(options, spec),
          .format = declared_format(options),
          .producer = options.text("producer")};
}

}  // namespace penstock
