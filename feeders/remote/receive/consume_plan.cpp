// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/consume_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <limits>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "feeders/remote/receive/producer_accounts.h"
#include "feeders/remote/wire/zmq_op.h"

namespace penstock::remote {
namespace {

constexpr std::int64_t kMostReceivers = 256;
/// The accounts can track this many producers.
constexpr std::int64_t kMostProducers = ProducerAccounts::Limits{}.producers;
constexpr std::int64_t kMostCredit = 1 << 16, kMostConnected = 1 << 16;
constexpr std::int64_t kMostHeld = 4096;
/// Default limit for the size of a pool, in batches.
constexpr std::uint64_t kPoolBatches = 256;
/// Image files of one message may be larger than its pixels.
constexpr std::int64_t kLeastMaxMessage = std::int64_t{64} << 20;
constexpr std::string_view kBind = "bind:", kConnect = "connect:";
constexpr std::string_view kBeginnings[] = {kBind, kConnect, "ipc://", "tcp://", "inproc://"};

/// Leaves room for messages of the wrong type or size, so that they can be reported, not cut off.
std::uint64_t default_max_message(std::uint64_t batch) {
  return 4 * batch + (std::uint64_t{64} << 10);
}

std::uint64_t batch_bytes(const BatchSpec& spec) { return BatchLayout(spec, spec.images).size(); }

/// Returns the messages that fit in `buffer` besides those that receivers hold or receive.
std::int64_t hwm_for(const Options& options, std::uint64_t batch, std::int32_t receivers) {
  if (!options.given("buffer")) {
    return checked_count("zmq-consume:hwm", options.integer("hwm"), INT_MAX);
  }
  if (options.given("hwm")) {
    throw ConfigError(
        "zmq-consume:hwm and zmq-consume:buffer both say how much may wait; keep one");
  }
  const std::uint64_t batches = options.bytes("buffer") / batch;
  const std::uint64_t elsewhere = 1 + static_cast<std::uint64_t>(receivers);
  if (batches <= elsewhere) {
    throw ConfigError(
        "zmq-consume:buffer is {}; expected at least {} bytes, for {} batches: one in the socket, "
        "one that arrives, and one for each receiver",
        options.text("buffer"), (elsewhere + 1) * batch, elsewhere + 1);
  }
  return static_cast<std::int64_t>(std::min<std::uint64_t>(batches - elsewhere, INT_MAX));
}

[[noreturn]] void refuse(std::string_view option, const std::string& why) {
  throw ConfigError("zmq-consume:{}{}", option, why);
}

ZmqSocketOptions socket_options(const Options& options, const BatchSpec& spec,
                                std::int32_t receivers) {
  const std::uint64_t max_message = options.text("max_message") == "auto"
                                        ? default_max_message(batch_bytes(spec))
                                        : options.bytes("max_message");
  if (max_message < batch_bytes(spec)) {
    throw ConfigError("zmq-consume:max_message is {}; a batch has {} bytes",
                      options.text("max_message"), batch_bytes(spec));
  }
  return {.role = ZmqSocketOptions::Role::pull,
          .insecure = options.flag("insecure"),
          .curve = net::read_curve({.secret = options.text("curve_secret"),
                                    .server_key = options.text("curve_server_key"),
                                    .allow = options.text("curve_allow")}),
          .hwm = hwm_for(options, batch_bytes(spec), receivers),
          .max_message = static_cast<std::int64_t>(max_message),
          .io_threads = checked_count("zmq-consume:io_threads", options.integer("io_threads"), 64)};
}

/// Empty: detected for each message.
std::optional<MessageFormat> declared_format(const Options& options) {
  const std::string& text = options.text("format");
  if (canonical_name(text) == "auto") return std::nullopt;
  return parse_message_format(text, "zmq-consume:format", "auto, ");
}

std::int32_t producers_of(const Options& options) {
  const std::int64_t count = options.integer("producers");
  return count == 0 ? 0 : checked_count("zmq-consume:producers", count, kMostProducers);
}

/// Position of the '+' that separates the first endpoint from the next.
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
  return {net::parse_endpoint(text), bind};
}

std::int64_t bytes_of(std::int64_t messages, std::int64_t message) noexcept {
  return messages * std::min(message, std::numeric_limits<std::int64_t>::max() / messages);
}

/// Whether messages hold image files. Throws ConfigError if they do not, but there are options for
/// image files.
bool wants_image_files(const Options& options) {
  if (options.flag("encoded")) return true;
  static constexpr auto kAbout =
      joined_options(kImageFileOptions, kJpegOptions, kDecodePoolOptions);
  for (const OptionSpec& option : kAbout) {
    if (option.name == "encoded" || !options.given(option.name)) continue;
    refuse(option.name,
           " applies to image files, but messages hold pixels; use encoded=true with a producer "
           "that sends files (penstock serve --encoded), or leave it out");
  }
  return false;
}

/// The producer decides how large messages of image files are: only the size of a small image is
/// required.
BatchSpec image_file_spec(const Options& options, BatchSpec spec) {
  spec.pixel = DType::u8;
  spec.normalised = false;
  spec.planar = false;
  if (options.text("max_message") != "auto") spec.images = 1;
  return spec;
}

void take_image_files(ConsumePlan& plan, const Options& options) {
  for (const OptionSpec& option : kPixelOptions) {
    if (!options.given(option.name)) continue;
    refuse(
        option.name,
        " is about pixels in messages, and encoded=true takes image files; leave out one of them");
  }
  if (plan.receivers > 1) {
    refuse("receivers",
           " are threads that copy pixels; with encoded=true one receives and --feeder-threads "
           "decode; leave receivers out");
  }
  if (options.text("max_message") == "auto") {
    plan.socket.max_message = std::max(plan.socket.max_message, kLeastMaxMessage);
  }
  if (plan.format && *plan.format != MessageFormat::framed) {
    refuse("encoded", "=true takes image files in Penstock's own format, and format is " +
                          options.text("format") + "; leave format out, or encoded");
  }
  if (options.text("decode") == "raw") {
    refuse("decode",
           "=raw takes pixels, and encoded=true image files; leave encoded out, and have producers "
           "send pixels");
  }
  plan.format.reset();  // other formats are refused with advice
  plan.image_files = true;
  plan.held = checked_count("zmq-consume:held", options.integer("held"), kMostHeld);
}

CreditTerms credit_terms(const Options& options, const BatchSpec& spec) {
  const auto count = [&](const char* name, std::int64_t most) -> std::int64_t {
    return checked_count(std::string("zmq-consume:") + name, options.integer(name), most);
  };
  CreditTerms terms{.credit = count("credit", kMostCredit),
                    .producers = count("max_producers", kMostConnected)};
  terms.together = options.text("credit_together") == "auto" ? terms.credit * terms.producers
                                                             : count("credit_together", INT_MAX);
  terms.max_pool =
      options.text("max_pool") == "auto" ? kPoolBatches * spec.bytes() : options.bytes("max_pool");
  terms.shared_only = options.flag("shared_memory");
  terms.copies = options.flag("copy");
  return terms;
}

void take_credit(ConsumePlan& plan, const Options& options, const BatchSpec& spec) {
  if (plan.format && *plan.format != MessageFormat::framed) {
    refuse("format", " is '" + options.text("format") + "'; with credit, messages are framed");
  }
  for (const char* name : {"held", "buffer", "receivers"}) {
    if (!options.given(name)) continue;
    refuse(name, " is about producers that push; leave it out, or credit");
  }
  if (plan.endpoints.size() > 1) {
    refuse("endpoint",
           fmt::format(" names {} places; with credit, expected one", plan.endpoints.size()));
  }
  for (const char* name : {"shared_memory", "max_pool"}) {
    if (!plan.image_files || !options.given(name)) continue;
    refuse(name,
           " applies to pixels in shared memory, but image files come in messages; leave it out, "
           "or leave encoded out");
  }
  plan.socket.bind = plan.endpoints.front().bind;
  plan.credit = credit_terms(options, spec);
  plan.held = 0;
}

/// Throws ConfigError for options that batches of arrays do not have.
void check_arrays(const Options& options) {
  for (const char* const other : {"encoded", "pixels", "planar", "credit", "shared_memory"}) {
    if (!options.given(other)) continue;
    refuse(
        "batch",
        fmt::format(" takes arrays that are no images, which producers push; leave out {}", other));
  }
  if (const std::string& format = options.text("format");
      options.given("format") && canonical_name(format) != "framed") {
    refuse("batch", fmt::format(" takes framed messages, and format is {}; leave it out", format));
  }
}

}  // namespace

bool ConsumePlan::is_on_one_machine() const noexcept {
  return std::ranges::all_of(endpoints, [](const ConsumeEndpoint& end) {
    const net::Endpoint& endpoint = end.endpoint;
    return endpoint.kind != net::Endpoint::Kind::tcp || endpoint.host == "[::1]" ||
           endpoint.host.starts_with("127.");
  });
}

std::int64_t ConsumePlan::most_bytes() const noexcept {
  const std::int64_t outside = held > 0 ? socket.hwm + 1 + held : most_messages();
  return bytes_of(credit ? credit->together + 2 : outside, socket.max_message);
}

std::int64_t ConsumePlan::flood_bytes() const noexcept {
  constexpr std::int64_t kMargin = std::int64_t{1} << 20;
  const std::int64_t accepted = bytes_of(most_messages(), socket.max_message);
  return std::min(accepted, std::numeric_limits<std::int64_t>::max() / 2) / 4 * 5 + kMargin;
}

std::int64_t ConsumePlan::most_outside() const noexcept {
  if (credit) return credit->credit + socket.hwm + 2;
  return static_cast<std::int64_t>(endpoints.size()) * most_waiting() + held;
}

std::vector<ConsumeEndpoint> parse_endpoints(std::string_view text, bool bind) {
  std::vector<ConsumeEndpoint> endpoints;
  while (true) {
    const std::size_t end = end_of_endpoint(text);
    const ConsumeEndpoint next = parse_one(text.substr(0, end), bind);
    const bool twice = std::any_of(endpoints.begin(), endpoints.end(), [&](const auto& known) {
      return known.endpoint.text == next.endpoint.text;
    });
    if (twice) throw ConfigError("zmq-consume:endpoint names {} twice", next.endpoint.text);
    endpoints.push_back(next);
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  if (endpoints.size() > ZmqSocket::kMostTogether) {
    throw ConfigError("zmq-consume:endpoint names {}; expected at most {}", endpoints.size(),
                      ZmqSocket::kMostTogether);
  }
  return endpoints;
}

ConsumePlan read_consume_plan(const Options& options, const BatchSpec& spec) {
  const bool image_files = wants_image_files(options);
  const BatchSpec batch = image_files ? image_file_spec(options, spec) : spec;
  BatchSpec taken = batch;
  if (options.given("batch")) {
    check_arrays(options);
    shape_arrays(options.text("batch"), kBatchOption, taken);
  } else {
    shape_pixels(options, taken);
  }
  if (taken != batch) {
    throw ConfigError(
        "zmq-consume receives {}, and this run wants {}; leave out what asks for other pixels",
        describe_pixels(taken), describe_pixels(batch));
  }
  const bool by_credit = options.integer("credit") != 0;
  for (const char* name :
       {"credit_together", "max_producers", "shared_memory", "copy", "max_pool"}) {
    if (by_credit || !options.given(name)) continue;
    refuse(name, " is about producers that send by credit; say credit=N, or leave it out");
  }
  const std::int32_t receivers =
      checked_count("zmq-consume:receivers", options.integer("receivers"), kMostReceivers);
  ConsumePlan plan{.endpoints = parse_endpoints(options.text("endpoint"), options.flag("bind")),
                   .socket = socket_options(options, batch, receivers),
                   .format = declared_format(options),
                   .receivers = receivers,
                   .producers = producers_of(options),
                   .keep_memory = options.flag("keep_memory"),
                   .producer = options.text("producer")};
  const std::size_t keys = plan.socket.curve.server_keys.size();
  if (keys > 1 && keys != plan.endpoints.size()) {
    refuse("curve_server_key",
           fmt::format(" names {} keys for {} endpoints; expected one, or one for each endpoint",
                       keys, plan.endpoints.size()));
  }
  if (image_files) take_image_files(plan, options);
  if (by_credit) take_credit(plan, options, spec);
  return plan;
}

std::string describe_waiting(const ConsumePlan& plan, const BatchSpec& spec) {
  if (plan.credit) return {};
  const std::int64_t batches = plan.most_waiting();
  if (plan.image_files) {
    return fmt::format(
        "up to {} messages of each producer wait in sockets, if it has the same hwm, and {} are "
        "held until their images are decoded",
        batches, plan.held);
  }
  const double bytes = static_cast<double>(batches) * static_cast<double>(batch_bytes(spec));
  const std::string hwm = std::to_string(plan.socket.hwm);
  return fmt::format(
      "up to {} batches ({} {}, {}) of each producer wait outside the ring: {} in its socket "
      "if it has the same hwm, 1 in transit, 1 being received, {} in this socket",
      batches, batches * spec.images, spec.opaque ? "samples" : "images", size_text(bytes), hwm,
      hwm);
}

}  // namespace penstock::remote
