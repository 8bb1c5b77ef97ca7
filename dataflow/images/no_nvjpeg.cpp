// SPDX-License-Identifier: Apache-2.0
// Replaces nvJPEG in builds without its header.
#include "dataflow/error.h"
#include "dataflow/images/nvjpeg.h"

namespace penstock::jpeg {

constinit const OptionValue kEngines[3] = {
    {"auto", "built-in for baseline images, else libjpeg"},
    {"libjpeg", "libjpeg-turbo"},
    {"nvjpeg", "on a GPU; missing here: this program was built without nvjpeg.h"}};

std::unique_ptr<GpuDecoder> make_gpu_decoder(bool) {
  throw Unavailable(
      "engine=nvjpeg: this program was built without nvjpeg.h of the CUDA toolkit; install "
      "libnvjpeg-dev-13-0 and configure again, or take engine=auto");
}

}  // namespace penstock::jpeg
