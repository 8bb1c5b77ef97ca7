// SPDX-License-Identifier: Apache-2.0
// In place of make_dataset.cpp, in builds without libjpeg or libpng.
#include "bench/dataset/default_dataset.h"
#include "dataflow/error.h"

namespace penstock::dataset {

void make_default_dataset(const std::string&, const std::stop_token&) {
  throw Unavailable(
      "this program cannot make the default data set: it was built without libjpeg or libpng; "
      "install libjpeg62-turbo-dev and libpng-dev and configure again, or give --data-dir");
}

}  // namespace penstock::dataset
