// SPDX-License-Identifier: Apache-2.0
// Replaces store.cpp in builds without ZeroMQ.
#include "dataflow/error.h"
#include "trainer/cluster/process_models.h"

namespace penstock::cluster {

std::unique_ptr<ModelStore> make_process_models(const ProcessModels&) {
  throw Unavailable(
      "reading the models of other processes: this program was built without ZeroMQ; install "
      "cppzmq-dev and configure again, or use sync-sgd or sma");
}

}  // namespace penstock::cluster
