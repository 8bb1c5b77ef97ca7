// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/worker_processes.h"

#include <cstdlib>

#include "dataflow/error.h"

namespace penstock::cluster {
namespace {

Launch launch_of(const Cluster& cluster, std::int32_t task) {
  Launch launch{.launcher = "--worker-hosts",
                .rank = task,
                .size = cluster.workers(),
                .local_rank = 0,
                .local_size = 0};
  const std::string host = host_of(cluster.worker_hosts[static_cast<std::size_t>(task)]);
  for (std::int32_t other = 0; other < cluster.workers(); ++other) {
    if (host_of(cluster.worker_hosts[static_cast<std::size_t>(other)]) != host) continue;
    launch.local_rank += other < task ? 1 : 0;
    ++launch.local_size;
  }
  return launch;
}

class WorkerProcesses final : public Processes {
 public:
  explicit WorkerProcesses(ServerConnection& connection)
      : connection_(connection), launch_(launch_of(connection.cluster(), connection.task())) {}

  const Launch& launch() const noexcept override { return launch_; }
  std::vector<std::string> all_gather(std::string_view text, Nanoseconds patience,
                                      std::string_view what) override {
    return connection_.all_gather(text, patience, what);
  }
  std::unique_ptr<CollectiveGroup> make_group(const Exchange&) override {
    PENSTOCK_ASSERT(false && "workers exchange through servers");
    return nullptr;
  }
  void abort(int exit_code) override {
    connection_.leave(exit_code);
    std::_Exit(exit_code);
  }
  void exit_stopped(int exit_code) override { abort(exit_code); }

 private:
  ServerConnection& connection_;
  const Launch launch_;
};

}  // namespace

std::unique_ptr<Processes> make_worker_processes(ServerConnection& connection) {
  return std::make_unique<WorkerProcesses>(connection);
}

}  // namespace penstock::cluster
