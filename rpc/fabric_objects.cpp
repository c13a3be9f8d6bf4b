#include "rpc/fabric_objects.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace farhop::rpc {
namespace {

uint64_t randomKey(size_t keyBytes) {
  uint64_t key = 0;
  // Keys are what a stranger would have to guess. Without randomness from the kernel they still differ.
  static std::atomic<uint64_t> counter{1};
  if (::getrandom(&key, sizeof(key), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(key))) key = counter++;
  return keyBytes >= sizeof(key) ? key : key & ((uint64_t{1} << (8 * keyBytes)) - 1);
}

absl::Status refused(const FabricLibrary& library, const std::string& provider, size_t bytes, int error) {
  absl::Status status = library.status(absl::StrCat("cannot register ", bytes, " bytes with ", provider), error);
  if (isSocketProvider(provider) || (error != FI_ENOMEM && error != FI_EAGAIN && error != EPERM)) return status;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(), "; registered memory is locked, and this process may lock ",
      limit.rlim_cur == RLIM_INFINITY ? "any amount" : absl::StrCat(limit.rlim_cur, " bytes"),
      " (RLIMIT_MEMLOCK): raise it with ulimit -l, LimitMEMLOCK= of the service, or memlock in /etc/security/limits.conf; "
      "FARHOP_FABRIC=tcp locks none"));
}

}  // namespace

bool isSocketProvider(const std::string& name) {
  return name.starts_with("tcp") || name.starts_with("net") || name.starts_with("sockets") || name.starts_with("udp");
}

bool isOneSidedProvider(const std::string& name) {
  return name.starts_with("verbs") || name.starts_with("efa") || name.starts_with("cxi");
}

absl::StatusOr<FabricObjects> openFabricObjects(const FabricLibrary& library, fi_info* info, size_t queueEntries) {
  FabricObjects objects;
  fid_fabric* fabric = nullptr;
  int result = library.openFabric(info->fabric_attr, &fabric, nullptr);
  if (result != 0) return library.status("fi_fabric", result);
  objects.fabric.reset(fabric);
  fid_domain* domain = nullptr;
  result = fi_domain(fabric, info, &domain, nullptr);
  if (result != 0) return library.status("fi_domain", result);
  objects.domain.reset(domain);

  fi_cq_attr queueAttributes{};
  queueAttributes.format = FI_CQ_FORMAT_DATA;
  queueAttributes.size = queueEntries;
  queueAttributes.wait_obj = providerName(*info) == "shm" ? FI_WAIT_NONE : FI_WAIT_FD;
  fid_cq* queue = nullptr;
  result = fi_cq_open(domain, &queueAttributes, &queue, nullptr);
  if (result != 0) return library.status("fi_cq_open", result);
  objects.queue.reset(queue);
  fi_av_attr addressAttributes{};
  addressAttributes.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  result = fi_av_open(domain, &addressAttributes, &addresses, nullptr);
  if (result != 0) return library.status("fi_av_open", result);
  objects.addresses.reset(addresses);

  fid_ep* endpoint = nullptr;
  result = fi_endpoint(domain, info, &endpoint, nullptr);
  if (result != 0) return library.status("fi_endpoint", result);
  objects.endpoint.reset(endpoint);
  result = fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV);
  if (result == 0) result = fi_ep_bind(endpoint, &addresses->fid, 0);
  if (result != 0) return library.status("fi_ep_bind", result);
  result = fi_enable(endpoint);
  if (result != 0) return library.status("fi_enable", result);
  if (queueAttributes.wait_obj == FI_WAIT_FD) {
    result = fi_control(&queue->fid, FI_GETWAIT, &objects.queueFd);
    if (result != 0) return library.status("fi_control(FI_GETWAIT)", result);
  }
  return objects;
}

absl::StatusOr<std::string> endpointName(const FabricLibrary& library, const FabricObjects& objects) {
  std::string name;
  size_t bytes = 0;
  int result = fi_getname(&objects.endpoint->fid, nullptr, &bytes);
  if (result != -FI_ETOOSMALL && result != 0) return library.status("fi_getname", result);
  name.resize(bytes);
  result = fi_getname(&objects.endpoint->fid, name.data(), &bytes);
  if (result != 0) return library.status("fi_getname", result);
  name.resize(bytes);
  return name;
}

absl::StatusOr<DeviceRegion> registerFabricMemory(const FabricLibrary& library, const fi_info& info,
                                                  const FabricObjects& objects, std::span<std::byte> memory,
                                                  BulkAccess access) {
  const auto modes = static_cast<uint64_t>(info.domain_attr->mr_mode);
  const bool usesVirtualAddresses = (modes & (FI_MR_VIRT_ADDR | FI_MR_BASIC)) != 0;
  uint64_t wanted = 0;
  if (includes(access, BulkAccess::kSource)) wanted |= FI_WRITE;
  if (includes(access, BulkAccess::kTarget)) wanted |= FI_READ;
  if (includes(access, BulkAccess::kRemoteWrite)) wanted |= FI_REMOTE_WRITE;
  if (includes(access, BulkAccess::kRemoteRead)) wanted |= FI_REMOTE_READ;
  for (int attempt = 0;; ++attempt) {
    fid_mr* region = nullptr;
    // Where the provider makes the keys, ours is ignored.
    const int result = fi_mr_reg(objects.domain.get(), memory.data(), memory.size(), wanted, 0,
                                 randomKey(info.domain_attr->mr_key_size), 0, &region, nullptr);
    if (result == 0) {
      return DeviceRegion{fi_mr_key(region), usesVirtualAddresses ? reinterpret_cast<uintptr_t>(memory.data()) : 0,
                          region};
    }
    // A key that is taken: only where keys are short.
    if (result != -FI_ENOKEY || attempt == 100) return refused(library, providerName(info), memory.size(), -result);
  }
}

}  // namespace farhop::rpc
