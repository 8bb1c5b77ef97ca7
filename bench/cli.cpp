// SPDX-License-Identifier: Apache-2.0
#include "bench/cli.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <ext/stdio_sync_filebuf.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <sstream>
#include <thread>
#include <utility>

#include "bench/exit_code.h"
#include "bench/foreign_flags.h"
#include "bench/horovod_flags.h"
#include "bench/image_flags.h"
#include "bench/update_flags.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "penstock_build.h"

namespace penstock {
namespace {

std::vector<std::string> spellings(const Flag& flag) {
  std::vector<std::string> names{kebab(flag.name)};
  std::istringstream aliases(flag.aliases);
  for (std::string alias; aliases >> alias;) names.push_back(kebab(alias));
  return names;
}

/// Flags by every spelling.
class FlagIndex {
 public:
  explicit FlagIndex(std::span<const Flag> flags) {
    for (const Flag& flag : flags) {
      for (const std::string& name : spellings(flag)) {
        by_name_[name] = &flag;
        names_.push_back(name);
      }
    }
  }
  const Flag* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  std::span<const std::string> names() const { return names_; }

 private:
  std::map<std::string, const Flag*> by_name_;
  std::vector<std::string> names_;
};

/// "--fake_location=queue", "-fake-location": name and value. Empty name: not a flag.
struct Word {
  std::string name, value;
  bool has_value = false;
};
Word split_word(const std::string& text) {
  const std::size_t dashes = std::min<std::size_t>(text.find_first_not_of('-'), 2);
  if (text.size() < 2 || dashes == 0 || dashes == std::string::npos) return {};
  if (dashes == 1 && text.size() == 2) return {};  // a short flag, such as -h
  if (std::isdigit(static_cast<unsigned char>(text[dashes])) != 0) return {};
  const std::size_t equals = text.find('=');
  Word word{canonical_name(text.substr(dashes, equals - dashes)), {}, false};
  if (equals != std::string::npos) {
    word.has_value = true;
    word.value = text.substr(equals + 1);
  }
  return word;
}

[[noreturn]] void refuse(std::string_view verb, const std::string& name, const FlagIndex& index) {
  std::string positive = name;
  if (name.starts_with("no")) positive.erase(0, name.starts_with("no-") ? 3 : 2);
  for (const ForeignFlag& foreign : foreign_flags()) {
    const std::string known = kebab(foreign.name);
    if (known == name || known == positive) {
      throw ConfigError(fmt::format("--{} means nothing here: {}", name, foreign.advice));
    }
  }
  const std::string guess = nearest_name(name, index.names());
  throw ConfigError(fmt::format("unknown flag --{}{}; see `penstock {} --help`", name,
                                guess.empty() ? "" : fmt::format("; did you mean --{}?", guess),
                                verb));
}

/// Rewrites every spelling into `--kebab-name=value`, so that CLI11 sees one.
std::vector<std::string> normalise(std::string_view verb, const FlagIndex& index,
                                   std::span<const std::string> arguments) {
  std::vector<std::string> result;
  std::map<std::string, std::string> values;  // of the flags so far
  const auto add = [&](const std::string& name, const std::string& value) {
    result.push_back("--" + name + "=" + value);
    const auto [earlier, first] = values.try_emplace(name, value);
    if (first || earlier->second == value) return;
    fmt::print(stderr, "penstock: --{0} is given twice, as '{1}' and as '{2}'; '{2}' holds\n", name,
               earlier->second, value);
    earlier->second = value;
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    Word word = split_word(arguments[i]);
    if (word.name.empty() || word.name == "help") {
      result.push_back(word.name == "help" ? "--help" : arguments[i]);
      continue;
    }
    const Flag* flag = index.find(word.name);
    if (flag == nullptr && word.name.starts_with("no") && !word.has_value) {
      const std::string positive = word.name.substr(word.name.starts_with("no-") ? 3 : 2);
      if (const Flag* negated = index.find(positive); negated != nullptr && negated->boolean) {
        add(kebab(negated->name), "false");
        continue;
      }
    }
    if (flag == nullptr) refuse(verb, word.name, index);
    if (!word.has_value && flag->boolean) {
      word.value = "true";
    } else if (!word.has_value) {
      if (i + 1 >= arguments.size()) {
        throw ConfigError(fmt::format("--{} needs a value", word.name));
      }
      word.value = arguments[++i];
    }
    if (word.value.empty()) throw ConfigError(fmt::format("--{} has an empty value", word.name));
    add(kebab(flag->name), word.value);
  }
  return result;
}

/// Does not throw where stderr is closed: this is the last thing that a failing program does.
void print_error(std::string_view message) {
  std::fputs(fmt::format("penstock: {}\n", message).c_str(), stderr);
}

/// A standard stream whose writes never fail for the code that prints: the first error is kept for
/// the end of the program, so that a closed or full output does not end a run.
class StandardStream {
 public:
  /// Replaces `stream`, which is stdout or stderr. /dev/null takes a closed descriptor, so that no
  /// file gets its number.
  StandardStream(std::FILE*& stream, int descriptor, int mode) : descriptor_(descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) {
      closed_ = errno;
      static_cast<void>(open("/dev/null", O_RDWR));  // gets the lowest number that is free
    }
    std::fflush(stream);
    cookie_io_functions_t functions{};
    functions.write = [](void* self, const char* text, std::size_t size) {
      return static_cast<StandardStream*>(self)->write(text, size);
    };
    stream_ = fopencookie(this, "w", functions);
    if (stream_ == nullptr) return;
    setvbuf(stream_, nullptr, isatty(descriptor) != 0 && mode == _IOFBF ? _IOLBF : mode, BUFSIZ);
    original_ = std::exchange(stream, stream_);
    place_ = &stream;
  }
  StandardStream(const StandardStream&) = delete;
  StandardStream& operator=(const StandardStream&) = delete;
  ~StandardStream() {
    if (stream_ == nullptr) return;
    *place_ = original_;
    std::fclose(stream_);
  }
  /// Of the first text that was lost; 0: none was.
  int error() const noexcept { return error_; }

 private:
  ssize_t write(const char* text, std::size_t size) {
    if (closed_ != 0) error_ = closed_;
    for (std::size_t done = 0; done < size && error_ == 0;) {
      const ssize_t count = ::write(descriptor_, text + done, size - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) error_ = errno;
      if (count > 0) done += static_cast<std::size_t>(count);
    }
    return static_cast<ssize_t>(size);
  }

  const int descriptor_;
  int closed_ = 0;  // the error of a descriptor that was closed
  std::atomic<int> error_{0};
  std::FILE *stream_ = nullptr, *original_ = nullptr;
  std::FILE** place_ = nullptr;
};

/// Standard output and standard error while the program runs; std::cout writes to the first.
class StandardStreams {
 public:
  StandardStreams() : output_buffer_(stdout), cout_before_(std::cout.rdbuf(&output_buffer_)) {}
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;
  ~StandardStreams() { std::cout.rdbuf(cout_before_); }
  /// Flushes; 0: all text of standard output got through.
  int output_error() {
    std::cout.flush();
    std::fflush(stdout);
    return output_.error();
  }

 private:
  const int input_ = fcntl(STDIN_FILENO, F_GETFD) < 0 ? open("/dev/null", O_RDONLY) : -1;
  StandardStream output_{stdout, STDOUT_FILENO, _IOFBF}, errors_{stderr, STDERR_FILENO, _IONBF};
  __gnu_cxx::stdio_sync_filebuf<char> output_buffer_;
  std::streambuf* const cout_before_;
};

/// Turns SIGINT, SIGTERM and SIGHUP into a stop request; a second one ends the process at once.
class SignalStop {
 public:
  SignalStop() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGUSR1);  // ends the waiting thread
    struct sigaction hang_up {};
    sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler != SIG_IGN) sigaddset(&signals_, SIGHUP);  // nohup ignores it
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // writing then fails with EFBIG
    waiter_ = std::jthread([this] { wait(); });
  }
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;
  ~SignalStop() {
    pthread_kill(waiter_.native_handle(), SIGUSR1);
    waiter_.join();
  }
  std::stop_token token() const { return stop_.get_token(); }
  int received() const { return received_; }
  [[noreturn]] void leave() const { _exit(128 + received_); }

 private:
  void wait() {
    for (int signal = 0; sigwait(&signals_, &signal) == 0 && signal != SIGUSR1;) {
      if (received_ != 0) _exit(128 + signal);
      received_ = signal;
      stop_.request_stop();
    }
  }
  sigset_t signals_{};
  std::stop_source stop_;
  std::atomic<int> received_{0};
  std::jthread waiter_;
};

std::string overview() {
  std::string text =
      "Penstock measures what feeding costs a training run.\n\nUsage: penstock VERB [flags]\n\n";
  for (const VerbEntry* verb : verb_table().entries) {
    text += fmt::format("  {:<10} {}\n", verb->name, verb->summary);
  }
  return text + "\nSee `penstock VERB --help` for its flags, and `penstock list` for components.\n";
}

}  // namespace

bool parse_flags(std::string_view verb, std::string_view summary, std::span<const Flag> flags,
                 std::span<const std::string> arguments, std::vector<std::string>* positional) {
  const FlagIndex index(flags);
  CLI::App app{std::string(summary), "penstock " + std::string(verb)};
  app.set_help_flag("-h,--help", "print this text and exit");
  for (const Flag& flag : flags) {
    std::string names;
    for (const std::string& name : spellings(flag)) names += (names.empty() ? "--" : ",--") + name;
    app.add_option_function<std::string>(names, flag.set, flag.help)
        ->group(flag.group)
        ->type_name(flag.boolean ? "BOOL" : "")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->default_str(flag.fallback);
  }
  if (positional != nullptr) app.add_option("arguments", *positional);
  std::vector<std::string> words = normalise(verb, index, arguments);
  std::reverse(words.begin(), words.end());  // CLI11 takes them last first
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ExtrasError&) {
    throw ConfigError(
        fmt::format("'{}' is not a flag; values follow theirs as --flag=value; see "
                    "`penstock {} --help`",
                    app.remaining().empty() ? words.back() : app.remaining().front(), verb));
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  }
  return true;
}

std::vector<Flag> run_flags(RunConfig& config) {
  std::vector<Flag> flags;
  for (const ConfigKey& key : config_keys()) {
    flags.push_back({.name = std::string(key.name),
                     .aliases = std::string(key.aliases),
                     .help = std::string(key.help),
                     .fallback = key.get(config),
                     .boolean = key.boolean,
                     .set = [&config, &key](const std::string& text) { key.set(config, text); },
                     .group = "Run"});
  }
  flags.push_back({.name = "like",
                   .aliases = "",
                   .help = "defaults of tf_cnn_benchmarks, tensorpack, horovod or kungfu",
                   .fallback = "",
                   .set = [](const std::string&) { /* applied before all others */ },
                   .group = "Run"});
  flags.push_back({.name = "use_fp16",
                   .aliases = "",
                   .help = "the same as --precision fp16",
                   .fallback = "false",
                   .boolean = true,
                   .set =
                       [&config](const std::string& text) {
                         const bool wanted = parse_flag(text, "--use-fp16");
                         if (wanted) config.precision = "fp16";
                         if (!wanted && config.precision == "fp16") config.precision = "fp32";
                       },
                   .group = "Run"});
  flags.push_back({.name = "fusion_threshold_mb",
                   .aliases = "",
                   .help = "Horovod's name for --bucket-mib, with the first bucket as large as the "
                           "others; 0: every tensor is a bucket",
                   .fallback = "",
                   .set =
                       [&config](const std::string& text) {
                         find_config_key("bucket_mib").set(config, text);
                         config.first_bucket_mib = 0;
                         constexpr double kOneByte = 1.0 / (1 << 20);
                         if (config.bucket_mib == 0) config.bucket_mib = kOneByte;
                       },
                   .group = "Run"});
  flags.push_back({.name = "use_xla_compile",
                   .aliases = "xla_compile xla",
                   .help = "accepted: steps are compiled with and without it",
                   .fallback = "true",
                   .boolean = true,
                   .set =
                       [](const std::string& text) {
                         parse_flag(text, "--use-xla-compile");
                         fmt::print(
                             stderr,
                             "penstock: --use-xla-compile changes nothing: a model is always "
                             "compiled for its device, on GPUs to one recorded graph of "
                             "fused kernels a step\n");
                       },
                   .group = "Run"});
  for (Flag& flag : horovod_flags(config)) flags.push_back(std::move(flag));
  for (Flag& flag : update_flags(config)) flags.push_back(std::move(flag));
  for (Flag& flag : image_flags(config)) flags.push_back(std::move(flag));
  return flags;
}

void apply_like_of(RunConfig& config, std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Word word = split_word(arguments[i]);
    if (word.name != "like") continue;
    if (word.has_value) {
      apply_like(config, word.value);
    } else if (i + 1 < arguments.size()) {
      apply_like(config, arguments[i + 1]);
    }
  }
  const bool has_data = is_typed("data_dir", arguments) || is_typed("data", arguments);
  if (has_data && !is_typed("fake_location", arguments)) config.fake_location = "queue";
  for (const char* const other : {"num_iters", "num_batches_per_iter"}) {
    if (!is_typed("num_batches", arguments) || !is_typed(other, arguments)) continue;
    throw ConfigError(
        fmt::format("--num-batches and --{} exclude each other; keep one", kebab(other)));
  }
}

bool is_typed(std::string_view name, std::span<const std::string> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return split_word(argument).name == canonical_name(name);
  });
}

namespace {

int run_verb(const char* program, std::vector<std::string> arguments) {
  const SignalStop signals;
  try {
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
        arguments[0] == "help") {
      fmt::print("{}", overview());
      return arguments.empty() ? 2 : 0;
    }
    if (arguments[0] == "--version") {
      fmt::print("penstock {} ({})\n", PENSTOCK_BUILD_VERSION, PENSTOCK_BUILD_COMPILER);
      return 0;
    }
    const VerbEntry& verb = find_entry(verb_table(), arguments[0]);
    arguments.erase(arguments.begin());
    const int code =
        verb.run({program, std::move(arguments), signals.token(), [&] { signals.leave(); }});
    std::fflush(stdout);
    return signals.received() != 0 ? 128 + signals.received() : code;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    print_error(failure_text(error));
    return signals.received() != 0 ? 128 + signals.received()
                                   : exit_code_of(std::current_exception());
  }
}

}  // namespace

int run_command_line(int argc, char** argv) {
  StandardStreams streams;
  int code = 0;
  try {
    code = run_verb(argv[0], std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const std::exception& error) {  // from the thread that waits for signals
    print_error(failure_text(error));
    code = exit_code_of(std::current_exception());
  }
  const int lost = streams.output_error();
  if (lost == 0) return code;
  print_error(fmt::format("cannot write standard output: {}", std::strerror(lost)));
  return code == 0 ? 6 : code;
}

}  // namespace penstock
