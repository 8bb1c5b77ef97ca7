// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/launch/run_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "bench/sweep/private_folder.h"
#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock::scaling {
namespace {

/// Every rank runs it. Its first argument is the pipe, which exists on this machine alone.
constexpr std::string_view kScript =
    "if [ \"$OMPI_COMM_WORLD_RANK\" = 0 ] && [ -p \"$0\" ]; then exec \"$@\" > \"$0\"; fi; "
    "exec \"$@\"";

/// A named pipe whose text goes to `take`, on a separate thread, until the object is destroyed.
class NamedPipe {
 public:
  explicit NamedPipe(std::function<void(std::string_view)> take)
      : take_(std::move(take)), path_((folder_.path() / "rank0").native()) {
    // Open for writing too, so that it does not end before rank 0 has opened it.
    if (mkfifo(path_.c_str(), 0600) == 0) {
      file_.reset(open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    }
    if (!file_) {
      throw Error("cannot make the pipe '{}': {}", path_, std::strerror(errno));
    }
    reader_ = std::jthread([this](const std::stop_token& stop) { relay(stop); });
  }
  NamedPipe(const NamedPipe&) = delete;
  NamedPipe& operator=(const NamedPipe&) = delete;
  /// Its writers have ended.
  ~NamedPipe() {
    reader_.request_stop();
    wake_.signal();
  }
  const std::string& path() const noexcept { return path_; }

 private:
  void relay(const std::stop_token& stop) const {
    std::array<char, 1 << 16> buffer;
    while (true) {
      const bool last = stop.stop_requested();  // asked before the last read
      ssize_t count = 0;
      while ((count = read(file_.get(), buffer.data(), buffer.size())) > 0) {
        take_(std::string_view(buffer.data(), static_cast<std::size_t>(count)));
      }
      if (last) return;
      std::array<pollfd, 2> files{{{file_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
      poll(files.data(), files.size(), -1);
    }
  }

  const std::function<void(std::string_view)> take_;
  const PrivateFolder folder_;
  const std::string path_;
  FileDescriptor file_;
  EventFd wake_;
  std::jthread reader_;
};

}  // namespace

ChildExit run_ranks(ChildCommand mpirun, const std::vector<std::string>& program,
                    const std::stop_token& stop) {
  std::string output;
  bool cut = false;
  std::optional<NamedPipe> pipe(mpirun.on_output ? mpirun.on_output : [&](std::string_view text) {
    const std::size_t room = ChildExit::kMaxOutput - output.size();
    cut = cut || text.size() > room;
    output += text.substr(0, room);
  });
  mpirun.arguments.insert(mpirun.arguments.end(), {"sh", "-c", std::string(kScript), pipe->path()});
  mpirun.arguments.insert(mpirun.arguments.end(), program.begin(), program.end());
  ChildProcess child(std::move(mpirun));
  ChildExit exit = child.wait(stop);
  pipe.reset();
  if (!output.empty()) {
    exit.output = std::move(output);
    exit.output_cut = cut;
  }
  return exit;
}

}  // namespace penstock::scaling
