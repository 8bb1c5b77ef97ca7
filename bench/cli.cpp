// SPDX-License-Identifier: Apache-2.0
#include "bench/cli.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <ext/stdio_sync_filebuf.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <system_error>
#include <thread>

#include "bench/config/job_file.h"
#include "bench/document/terminal.h"
#include "bench/record/environment.h"
#include "bench/record/exit_code.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

/// Does not throw if stderr is closed, because a failing program calls this last.
void print_error(std::string_view message) {
  std::fputs(fmt::format("penstock: {}\n", message).c_str(), stderr);
}

/// Where a standard stream writes. Trivially destructible: libraries flush the stream at exit,
/// after the destructors of static objects.
struct StandardOutput {
  ssize_t write(const char* text, std::size_t size) {
    if (closed != 0) error = closed;
    const std::string safe = document::printable({text, size}, terminal);
    for (std::size_t done = 0; done < safe.size() && error == 0;) {
      const ssize_t count = ::write(descriptor, safe.data() + done, safe.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) error = errno;
      if (count > 0) done += static_cast<std::size_t>(count);
    }
    return static_cast<ssize_t>(size);
  }

  int descriptor;
  bool terminal = false;
  int closed = 0;  // the error, if the descriptor was closed
  std::atomic<int> error{0};
};

StandardOutput standard_output{STDOUT_FILENO}, standard_error{STDERR_FILENO};

/// A standard stream whose writes never fail for the code that prints. It keeps the first error for
/// the end of the program, so that a closed or full output does not end a run. The stream is never
/// closed: libraries that are opened during a run, such as cuBLAS, keep it and flush it at exit.
class StandardStream {
 public:
  /// Replaces `stream`, which is stdout or stderr. A closed descriptor is opened on /dev/null, so
  /// that no other file gets its number.
  StandardStream(std::FILE*& stream, StandardOutput& output, int mode)
      : place_(stream), original_(stream), output_(output) {
    output.closed = fcntl(output.descriptor, F_GETFD) < 0 ? errno : 0;
    output.error = 0;
    output.terminal = document::is_terminal(output.descriptor);
    if (output.closed != 0) {
      static_cast<void>(open("/dev/null", O_RDWR));  // gets the lowest free number
    }
    std::fflush(stream);
    cookie_io_functions_t functions{};
    functions.write = [](void* self, const char* text, std::size_t size) {
      return static_cast<StandardOutput*>(self)->write(text, size);
    };
    std::FILE* const replacement = fopencookie(&output, "w", functions);
    if (replacement == nullptr) return;
    setvbuf(replacement, nullptr, isatty(output.descriptor) != 0 && mode == _IOFBF ? _IOLBF : mode,
            BUFSIZ);
    stream = replacement;
  }
  StandardStream(const StandardStream&) = delete;
  StandardStream& operator=(const StandardStream&) = delete;
  ~StandardStream() {
    std::fflush(place_);
    place_ = original_;
  }
  /// The errno of the first write that lost text; 0: no text was lost.
  int error() const noexcept { return output_.error; }

 private:
  std::FILE*& place_;
  std::FILE* const original_;
  StandardOutput& output_;
};

/// Standard output and standard error while the program runs, also for std::cout and std::cerr.
class StandardStreams {
 public:
  StandardStreams()
      : output_buffer_(stdout),
        error_buffer_(stderr),
        cout_before_(std::cout.rdbuf(&output_buffer_)),
        cerr_before_(std::cerr.rdbuf(&error_buffer_)) {}
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;
  ~StandardStreams() {
    std::cout.rdbuf(cout_before_);
    std::cerr.rdbuf(cerr_before_);
  }
  /// Flushes. Returns 0 if all text reached standard output.
  int output_error() {
    std::cout.flush();
    std::fflush(stdout);
    return output_.error();
  }

 private:
  const int input_ = fcntl(STDIN_FILENO, F_GETFD) < 0 ? open("/dev/null", O_RDONLY) : -1;
  StandardStream output_{stdout, standard_output, _IOFBF}, errors_{stderr, standard_error, _IONBF};
  __gnu_cxx::stdio_sync_filebuf<char> output_buffer_, error_buffer_;
  std::streambuf *const cout_before_, *const cerr_before_;
};

/// Turns SIGINT, SIGTERM and SIGHUP into a stop request; a second one ends the process at once.
class SignalStop {
 public:
  SignalStop() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGUSR1);  // also ends the waiting thread
    sigaddset(&signals_, SIGUSR2);
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
    ending_ = true;
    pthread_kill(waiter_.native_handle(), SIGUSR1);
    waiter_.join();
  }
  std::stop_token token() const { return stop_.get_token(); }
  int received() const { return received_; }
  [[noreturn]] void leave() const { _exit(exit_code_of_stop()); }
  void redirect(SignalHandler handler) {
    const std::lock_guard lock(mutex_);
    handler_ = std::move(handler);
  }

 private:
  void wait() {
    siginfo_t info{};
    while (true) {
      const int signal = sigwaitinfo(&signals_, &info);
      if (signal < 0) continue;  // a debugger interrupts it
      if (ending_) return;
      {
        const std::lock_guard lock(mutex_);
        if (handler_) {
          handler_(signal, info.si_code == SI_KERNEL);
          continue;
        }
      }
      if (signal == SIGUSR1) continue;
      if (signal == SIGUSR2) _exit(128 + signal);
      if (received_ != 0) _exit(128 + signal);
      note_stop_signal(signal);
      received_ = signal;
      stop_.request_stop();
    }
  }
  sigset_t signals_{};
  std::stop_source stop_;
  std::atomic<int> received_{0};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  SignalHandler handler_;  // guarded by mutex_
  std::jthread waiter_;
};

std::string overview() {
  std::string text =
      "Penstock measures what the input pipeline costs a training run.\n\n"
      "Usage: penstock VERB [flags]\n\n";
  for (const VerbEntry* verb : verb_table().entries) {
    text += fmt::format("  {:<11} {}\n", verb->name, verb->summary);
  }
  return text +
         "\nBegin with `penstock sweep`, then `penstock isolate --data-dir FOLDER` for your own "
         "images.\n"
         "`penstock VERB --help` shows the flags of a verb, `penstock list` the components.\n";
}

/// Adds the place in the job file to errors about its flags.
int call(const VerbEntry& verb, Invocation invocation) {
  const auto is_verb = [](std::string_view name) {
    return match_entry(verb_table(), name) != nullptr;
  };
  const JobFile job(verb.name, is_verb, invocation.arguments);
  try {
    return verb.run(invocation);
  } catch (const ConfigError& error) {
    throw ConfigError(error.what() + job.place_of(error.what()));
  }
}

/// Where the program is, which need not be what it was called.
std::string path_of(const char* called) {
  std::error_code none;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", none);
  return none ? called : path.native();
}

int run_verb(const char* called, std::vector<std::string> arguments) {
  SignalStop signals;
  try {
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "--help-all" ||
        arguments[0] == "-h" || arguments[0] == "help") {
      fmt::print("{}", overview());
      return arguments.empty() ? 2 : 0;
    }
    if (arguments[0] == "--version") {
      const Environment environment = read_environment();
      fmt::print("penstock {} (revision {}, {})\n", environment.version, environment.revision,
                 environment.compiler);
      return 0;
    }
    if (arguments[0].starts_with('-')) {
      throw ConfigError(
          "'{0}' is a flag, and the first word is the verb; did you mean `penstock run {0} ...`?",
          arguments[0]);
    }
    const VerbEntry& verb = find_entry(verb_table(), arguments[0]);
    arguments.erase(arguments.begin());
    const int code = call(
        verb, {path_of(called), std::move(arguments), signals.token(), [&] { signals.leave(); },
               [&](SignalHandler handler) { signals.redirect(std::move(handler)); }});
    std::fflush(stdout);
    return signals.received() != 0 ? exit_code_of_stop() : code;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    print_error(failure_text(error));
    return signals.received() != 0 ? exit_code_of_stop() : exit_code_of(std::current_exception());
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
