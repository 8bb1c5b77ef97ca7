// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <sstream>

#include "dataflow/error.h"
#include "dataflow/machine/processes.h"

namespace penstock {
namespace {

constexpr std::size_t kLastWords = 8000;

[[noreturn]] void fail(std::string_view what, const std::string& program, int error) {
  throw Error("cannot {} '{}': {}", what, program, std::strerror(error));
}

struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe(const std::string& program) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("make a pipe to", program, errno);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// The files that a child gets as its standard output, its standard error, and `lines` (-1: none).
struct Inherited {
  int output, errors, lines;
};

/// Runs in the child between fork and exec, so it makes system calls only. `files`: null if the
/// child shares the terminal. Returns the errno of the failed call.
int become(char* const* arguments, char* const* environment, pid_t parent, const Inherited* files) {
  if (files != nullptr) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(128 + SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Background jobs of a shell ignore SIGINT, and the child would inherit this. A child that shares
  // the terminal is part of that job.
  for (const int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);
  if (files != nullptr) {
    for (const int number : {SIGINT, SIGTERM}) signal(number, SIG_DFL);
    const int input = open("/dev/null", O_RDONLY);  // NOLINT: O_CLOEXEC is cleared by dup2 anyway
    if (input < 0 || dup2(input, 0) < 0 || dup2(files->output, 1) < 0 ||
        dup2(files->errors, 2) < 0) {
      return errno;
    }
    if (files->lines >= 0 && fcntl(files->lines, F_SETFD, 0) < 0) return errno;
  }
  execvpe(arguments[0], arguments, environment);
  return errno;
}

/// The environment of this process with `changes`, as NAME=VALUE.
std::vector<std::string> environment_with(std::span<const std::string> changes) {
  std::vector<std::string> result(changes.begin(), changes.end());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto replaces = [&](const std::string& change) { return change.starts_with(name); };
    if (std::ranges::none_of(changes, replaces)) result.emplace_back(text);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(file, text.data(), text.size());
    if (count < 0 && errno != EINTR) return;  // a closed stderr is not the child's fault
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
}

/// Time left for poll, rounded up, so that the deadline has passed when poll returns.
int milliseconds_until(Time deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3600 * 1000));
}

/// The signals that end a process or a group, from polite to forced, and the time of the next one.
class Escalation {
 public:
  /// `target` as in kill(2).
  Escalation(pid_t target, Nanoseconds grace) : target_(target), grace_(grace) {}
  bool begun() const noexcept { return step_ > 0; }
  Time due() const noexcept { return due_; }
  void next() {
    constexpr std::array kSignals = {SIGINT, SIGTERM, SIGKILL};
    if (step_ < kSignals.size()) kill(target_, kSignals[step_++]);
    due_ = step_ < kSignals.size() ? std::chrono::steady_clock::now() + grace_ : Time::max();
  }

 private:
  const pid_t target_;
  const Nanoseconds grace_;
  std::size_t step_ = 0;
  Time due_{};
};

}  // namespace

std::string ChildExit::describe() const {
  std::string text;
  if (cause == Cause::timed_out) text = "did not end in time; ";
  if (signal != 0) {
    text += fmt::format("was ended by signal {} ({})", signal, strsignal(signal));
  } else {
    text += fmt::format("exited with code {}", code);
  }
  if (last_words.empty()) return text;
  constexpr std::size_t kQuoted = 300;
  const std::size_t begin = last_words.size() - std::min(last_words.size(), kQuoted);
  return text + "; it said: " + (begin > 0 ? "..." : "") + last_words.substr(begin);
}

ChildProcess::ChildProcess(ChildCommand command) : command_(std::move(command)) {
  const std::string& program = command_.arguments.front();
  Pipe output = make_pipe(program), errors = make_pipe(program), started = make_pipe(program);
  Pipe lines;
  std::vector<std::string> words = command_.arguments;
  if (!command_.pipe_flag.empty()) {
    lines = make_pipe(program);
    words.push_back(fmt::format("{}{}", command_.pipe_flag, lines.write.get()));
  }
  const std::vector<char*> arguments = pointers_to(words);
  std::vector<std::string> variables = environment_with(command_.environment);
  const std::vector<char*> environment = pointers_to(variables);
  const Inherited files{output.write.get(), errors.write.get(), lines.write.get()};

  const pid_t parent = getpid();
  pid_ = fork_watched(process_);
  const int watch_error = process_ ? 0 : errno;
  if (pid_ < 0) fail("start", program, errno);
  if (pid_ == 0) {
    const int error = become(arguments.data(), environment.data(), parent,
                             command_.shares_terminal ? nullptr : &files);
    static_cast<void>(!write(started.write.get(), &error, sizeof error));
    _exit(127);
  }
  // Parent and child both do this, because either may come first.
  if (!command_.shares_terminal) setpgid(pid_, pid_);
  for (Pipe* pipe : {&output, &errors, &started, &lines}) pipe->write.reset();
  int error = 0;
  ssize_t count = 0;
  do {
    count =
        read(started.read.get(), &error, sizeof error);  // returns after exec, or with its error
  } while (count < 0 && errno == EINTR);
  if (count > 0 || watch_error != 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (watch_error == 0) fail("start", program, error);
    throw Error("cannot watch '{}': {}; {}", program, std::strerror(watch_error), kWatchAdvice);
  }
  streams_ = {std::move(output.read), std::move(errors.read), std::move(lines.read)};
  for (const FileDescriptor& stream : streams_) {
    fcntl(stream.get(), F_SETFL, O_NONBLOCK);  // fails harmlessly without a pipe
  }
  follower_ = std::jthread([this](const std::stop_token& stop) { follow(stop); });
}

ChildProcess::~ChildProcess() = default;  // requests the follower's stop, then joins it

const ChildExit& ChildProcess::wait(const std::stop_token& stop) {
  const std::stop_callback forward(stop, [this] { follower_.request_stop(); });
  if (follower_.joinable()) follower_.join();
  return exit_;
}

const ChildExit& ChildProcess::stop() {
  follower_.request_stop();
  return wait();
}

void ChildProcess::send(int signal) const noexcept {
  if (syscall(SYS_pidfd_send_signal, process_.get(), signal, nullptr, 0) == 0) return;
  // It fails after the child's end, and in containers that refuse it. They get the same by its
  // number, which is the child's until it is reaped.
  pollfd ended{process_.get(), POLLIN, 0};
  if ((errno == EPERM || errno == ENOSYS) && poll(&ended, 1, 0) == 0) kill(pid_, signal);
}

/// Reads the available bytes. Returns false at the end of the file.
bool ChildProcess::read_stream(std::size_t stream) {
  constexpr std::array kTakers = {&ChildProcess::take_output, &ChildProcess::take_errors,
                                  &ChildProcess::take_lines};
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t count = read(streams_[stream].get(), buffer.data(), buffer.size());
    if (count > 0) {
      (this->*kTakers[stream])({buffer.data(), static_cast<std::size_t>(count)});
    } else if (count == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
}

void ChildProcess::take_output(std::string_view text) {
  if (command_.on_output) return command_.on_output(text);
  const std::size_t room = ChildExit::kMaxOutput - exit_.output.size();
  exit_.output_cut = exit_.output_cut || text.size() > room;
  exit_.output += text.substr(0, room);
}

void ChildProcess::take_errors(std::string_view text) {
  if (command_.show_stderr) write_all(STDERR_FILENO, text);
  std::string& words = exit_.last_words;
  words += text;
  if (words.size() > 2 * kLastWords) words.erase(0, words.size() - kLastWords);
}

void ChildProcess::take_lines(std::string_view text) {
  for (const char c : text) {
    if (c != '\n') {
      if (line_.size() <= ChildCommand::kMaxLine) line_ += c;
      continue;
    }
    if (line_.size() <= ChildCommand::kMaxLine) command_.on_line(line_);
    line_.clear();
  }
}

void ChildProcess::follow(const std::stop_token& stop) {
  relay(stop);
  // Leftover processes. The child is not reaped, so its number is still valid.
  if (!command_.shares_terminal) kill(-pid_, SIGKILL);
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) read_stream(stream);
  reap();
  if (command_.on_end) command_.on_end();
}

/// Reads the child's output until it ends, and enforces timeout and stop requests.
void ChildProcess::relay(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { wake_.signal(); });
  const Time deadline = std::chrono::steady_clock::now() + command_.timeout;
  Escalation ending(target(), command_.grace);
  enum { kEnd, kWake, kStreams };
  std::array<pollfd, 5> files{{{process_.get(), POLLIN, 0},
                               {wake_.get(), POLLIN, 0},
                               {streams_[0].get(), POLLIN, 0},
                               {streams_[1].get(), POLLIN, 0},
                               {streams_[2].get(), POLLIN, 0}}};
  while (true) {
    const Time due = ending.begun() ? ending.due() : deadline;
    if (poll(files.data(), files.size(), milliseconds_until(due)) < 0) {
      PENSTOCK_ASSERT(errno == EINTR);
      continue;
    }
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      pollfd& file = files[kStreams + stream];
      if (file.revents != 0 && !read_stream(stream)) file.fd = -1;
    }
    if (files[kEnd].revents != 0) return;
    const bool woken = files[kWake].revents != 0;
    if (woken) files[kWake].fd = -1;
    if (!ending.begun() && (woken || std::chrono::steady_clock::now() >= deadline)) {
      exit_.cause = woken ? ChildExit::Cause::stopped : ChildExit::Cause::timed_out;
      ending.next();
    } else if (ending.begun() && std::chrono::steady_clock::now() >= ending.due()) {
      ending.next();
    }
  }
}

void ChildProcess::reap() {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) < 0 && errno == EINTR) {
  }
  (info.si_code == CLD_EXITED ? exit_.code : exit_.signal) = info.si_status;
  std::string& words = exit_.last_words;
  while (!words.empty() && words.back() == '\n') words.pop_back();
  if (words.size() > kLastWords) {
    words.erase(0, words.find('\n', words.size() - kLastWords - 1) + 1);  // keep whole lines only
  }
}

bool can_start(const std::string& program) {
  const auto is_executable = [](const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           access(path.c_str(), X_OK) == 0;
  };
  if (program.find('/') != std::string::npos) return is_executable(program);
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; !program.empty() && std::getline(folders, folder, ':');) {
    if (is_executable((folder.empty() ? "." : folder) + "/" + program)) return true;
  }
  return false;
}

}  // namespace penstock
