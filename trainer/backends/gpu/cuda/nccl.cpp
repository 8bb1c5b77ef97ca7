// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <bit>
#include <string>
#include <string_view>

#include "dataflow/error.h"
#include "dataflow/machine/dynamic_library.h"
#include "trainer/backends/gpu/cuda/cuda_check.h"
#include "trainer/backends/gpu/cuda/cuda_driver.h"

namespace penstock::gpu {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// The NCCL functions that are used here. The library stays open until the program ends.
struct Nccl {
  const DynamicLibrary library{"libnccl.so.2",
                               fmt::format("install NCCL {} or newer, or put it on LD_LIBRARY_PATH",
                                           version_text(NCCL_VERSION_CODE))};
  decltype(&ncclGetVersion) const get_version = library["ncclGetVersion"];
  decltype(&ncclGetUniqueId) const get_unique_id = library["ncclGetUniqueId"];
  decltype(&ncclCommInitRankConfig) const init_rank = library["ncclCommInitRankConfig"];
  decltype(&ncclCommAbort) const abort = library["ncclCommAbort"];
  decltype(&ncclCommGetAsyncError) const async_error = library["ncclCommGetAsyncError"];
  decltype(&ncclAllReduce) const all_reduce = library["ncclAllReduce"];
  decltype(&ncclReduce) const reduce = library["ncclReduce"];
  decltype(&ncclBroadcast) const broadcast = library["ncclBroadcast"];
  decltype(&ncclGetErrorString) const error_string = library["ncclGetErrorString"];
  decltype(&ncclGetLastError) const last_error = library["ncclGetLastError"];

  Nccl() {
    int version = 0;
    if (get_version(&version) == ncclSuccess && version >= NCCL_VERSION_CODE) return;
    throw Unavailable("NCCL {} is loaded, {} or newer is needed", version_text(version),
                      version_text(NCCL_VERSION_CODE));
  }
};

/// Opens NCCL at the first call that succeeds.
const Nccl& nccl() {
  static const Nccl functions;
  return functions;
}

ncclDataType_t nccl_type(DType type) {
  if (type == DType::f16) return ncclFloat16;
  return type == DType::bf16 ? ncclBfloat16 : ncclFloat32;
}

/// An operation that is still in progress is not an error.
void check_nccl(ncclResult_t status, std::string_view call, const std::string& who,
                ncclComm_t communicator) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  const char* const details = nccl().last_error(communicator);
  throw DeviceError("{}: {} failed with {} ({}){}{}", who, call, static_cast<int>(status),
                    nccl().error_string(status), details == nullptr || *details == '\0' ? "" : ": ",
                    details == nullptr ? "" : details);
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const CommunicatorId& id, const CommunicatorPlace& place, std::int32_t ordinal)
      : nccl_(nccl()), ordinal_(ordinal), who_(fmt::format("CUDA device {}", ordinal)) {
    use_device();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto unique = std::bit_cast<ncclUniqueId>(id);
    const ncclResult_t status =
        nccl_.init_rank(&communicator_, place.size, unique, place.rank, &config);
    try {
      check("ncclCommInitRankConfig", status);
    } catch (...) {
      abort();
      throw;
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override { abort(); }

  void all_reduce(void* data, DType type, std::size_t count, StreamHandle stream) override {
    use_device();
    check("ncclAllReduce", nccl_.all_reduce(data, data, count, nccl_type(type), ncclSum,
                                            communicator_, native_stream(stream)));
  }
  void reduce(float* data, std::size_t count, std::int32_t root, StreamHandle stream) override {
    use_device();
    check("ncclReduce", nccl_.reduce(data, data, count, ncclFloat32, ncclSum, root, communicator_,
                                     native_stream(stream)));
  }
  void broadcast(float* data, std::size_t count, std::int32_t root, StreamHandle stream) override {
    use_device();
    check("ncclBroadcast", nccl_.broadcast(data, data, count, ncclFloat32, root, communicator_,
                                           native_stream(stream)));
  }

  bool ready() override {
    ncclResult_t state = ncclSuccess;
    check("ncclCommGetAsyncError", nccl_.async_error(communicator_, &state));
    check("ncclCommGetAsyncError", state);
    return state == ncclSuccess;
  }

  void abort() noexcept override {
    if (communicator_ == nullptr) return;
    if (cudaSetDevice(ordinal_) == cudaSuccess) nccl_.abort(communicator_);
    communicator_ = nullptr;
  }

 private:
  void use_device() const { check_cuda(cudaSetDevice(ordinal_), "cudaSetDevice", ordinal_); }
  void check(std::string_view call, ncclResult_t status) const {
    check_nccl(status, call, who_, communicator_);
  }

  const Nccl& nccl_;
  const std::int32_t ordinal_;
  const std::string who_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

CommunicatorId make_nccl_id() {
  ncclUniqueId id{};
  check_nccl(nccl().get_unique_id(&id), "ncclGetUniqueId", "NCCL", nullptr);
  static_assert(sizeof(CommunicatorId) == sizeof id);
  return std::bit_cast<CommunicatorId>(id);
}

std::unique_ptr<Communicator> make_nccl_communicator(const CommunicatorId& id,
                                                     const CommunicatorPlace& place,
                                                     std::int32_t ordinal) {
  return std::make_unique<NcclCommunicator>(id, place, ordinal);
}

}  // namespace penstock::gpu
