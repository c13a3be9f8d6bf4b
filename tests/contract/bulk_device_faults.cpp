// What a transport does when its device misbehaves: refuses memory, never completes, cannot close connections.
#include <gmock/gmock.h>
#include <rdma/fi_errno.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "rpc/bulk_device.h"
#include "rpc/fabric_address.h"
#include "rpc/fabric_objects.h"
#include "tests/bulk_group.h"

namespace farhop::rpc {
namespace {

using namespace farhop::rpc::testing;
using ::testing::HasSubstr;

// What the test and its device share; outlives the transport.
struct Script {
  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;
  // Guarded by mutex, as is everything.
  bool takesTransfers = true;
  bool closesConnections = true;
  bool unregisteringIsFinal = false;
  absl::Status registration;
  std::vector<uint64_t> posted;
  std::vector<DeviceCompletion> completions;
  int registered = 0;

  void complete(DeviceCompletion completion) {
    std::lock_guard lock(mutex);
    completions.push_back(std::move(completion));
    woken = true;
    changed.notify_all();
  }
  size_t postedCount() {
    std::lock_guard lock(mutex);
    return posted.size();
  }
  bool awaitPosted(size_t count) {
    for (int i = 0; i < 10'000 && postedCount() < count; ++i) std::this_thread::sleep_for(milliseconds(1));
    return postedCount() >= count;
  }
  int registeredCount() {
    std::lock_guard lock(mutex);
    return registered;
  }
};

class ScriptedDevice : public BulkDevice {
 public:
  explicit ScriptedDevice(std::shared_ptr<Script> script) : script_(std::move(script)) {}
  std::string provider() const override { return "scripted"; }
  std::string address() const override { return "me"; }
  size_t maxPosted() const override { return 64; }
  absl::StatusOr<std::string> addPeer(int, const std::string& address) override { return address; }
  absl::StatusOr<DeviceRegion> registerMemory(std::span<std::byte> memory, BulkAccess) override {
    std::lock_guard lock(script_->mutex);
    FARHOP_RETURN_IF_ERROR(script_->registration);
    ++script_->registered;
    return DeviceRegion{1, 0, memory.data()};
  }
  void unregisterMemory(const DeviceRegion&) override {
    std::lock_guard lock(script_->mutex);
    --script_->registered;
  }
  absl::StatusOr<bool> post(const DeviceTransfer& transfer) override {
    std::lock_guard lock(script_->mutex);
    if (!script_->takesTransfers) return false;
    script_->posted.push_back(transfer.id);
    return true;
  }
  void poll(std::vector<DeviceCompletion>* completions) override {
    std::lock_guard lock(script_->mutex);
    for (DeviceCompletion& one : script_->completions) completions->push_back(std::move(one));
    script_->completions.clear();
  }
  void wait(int timeoutMs) override {
    std::unique_lock lock(script_->mutex);
    script_->changed.wait_until(lock, Clock::now() + milliseconds(timeoutMs < 0 ? 60'000 : timeoutMs),
                                [this] { return script_->woken; });
    script_->woken = false;
  }
  void wake() override {
    std::lock_guard lock(script_->mutex);
    script_->woken = true;
    script_->changed.notify_all();
  }
  bool dropPeer(int) override {
    std::lock_guard lock(script_->mutex);
    return script_->closesConnections;
  }
  bool unregisteringIsFinal() const override {
    std::lock_guard lock(script_->mutex);
    return script_->unregisteringIsFinal;
  }
  void close() override {}

 private:
  const std::shared_ptr<Script> script_;
};

class BulkDeviceFaults : public ::testing::Test {
 protected:
  void SetUp() override { make(bulkOptions(0, 3)); }
  void make(BulkOptions options) {
    auto made = makeBulkTransport(std::move(options), std::make_unique<ScriptedDevice>(script_));
    ASSERT_TRUE(made.ok()) << made.status();
    transport_ = *std::move(made);
    transport_->onArrival(arrivals_.callback());
    ASSERT_TRUE(transport_->connect({"me", "one", "two"}).ok());
  }
  BulkEnd write(int peer, Deadline deadline, size_t bytes = 1000) {
    BulkEnd end;
    transport_->write({.peer = peer, .local = region(), .bytes = bytes, .remote = {1, 0, 1 << 20}, .deadline = deadline},
                      end.done());
    return end;
  }
  std::shared_ptr<BulkRegion> region() {
    if (region_ == nullptr) {
      auto block = makeBlock(1 << 20);
      watched_ = block;
      region_ = registered(*transport_, block);
    }
    return region_;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  Arrivals arrivals_;
  std::unique_ptr<BulkTransport> transport_;
  std::shared_ptr<BulkRegion> region_;
  std::weak_ptr<Block> watched_;
};

TEST_F(BulkDeviceFaults, EndATransferAtItsDeadline_ButKeepItsMemory) {
  BulkEnd end = write(1, bulkSoon(1000));
  ASSERT_TRUE(script_->awaitPosted(1));
  const absl::Status status = end.wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(peerOf(status).has_value());
  EXPECT_EQ(describePeer(*peerOf(status)), "machine 1 process 0 (one)");
  BulkEnd early, drained;
  transport_->drain(region_, bulkSoon(30), early.done());
  EXPECT_THAT(std::string(early.wait().message()), HasSubstr("1 own transfers"));
  region_ = nullptr;
  EXPECT_FALSE(watched_.expired());
  // Late, but it says that the memory is free.
  script_->complete({.isArrival = false, .id = script_->posted[0], .data = 0, .status = {}});
  for (int i = 0; i < 2000 && !watched_.expired(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(watched_.expired());
  EXPECT_EQ(script_->registeredCount(), 0);
}

TEST_F(BulkDeviceFaults, EndWaitingTransfersAtTheirDeadline) {
  script_->takesTransfers = false;
  BulkEnd soon = write(1, bulkSoon(30)), later = write(1, bulkSoon(80)), never = write(2, Deadline());
  EXPECT_EQ(never.wait().code(), absl::StatusCode::kDeadlineExceeded);
  const absl::Status status = soon.wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no connection could be made before the deadline"));
  EXPECT_EQ(later.wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(script_->postedCount(), 0u);
  BulkEnd drained;
  transport_->drain(region_, bulkSoon(), drained.done());
  EXPECT_TRUE(drained.wait().ok());
}

TEST_F(BulkDeviceFaults, BoundWhatIsUnderWay_PerPeer) {
  BulkOptions options = bulkOptions(0, 3);
  options.maxInFlightPerPeer = 3;
  options.maxInFlightBytesPerPeer = 5000;
  transport_ = nullptr;
  region_ = nullptr;
  make(std::move(options));
  std::vector<BulkEnd> ends;
  for (int i = 0; i < 10; ++i) ends.push_back(write(1, bulkSoon(), 2000));  // two fit by bytes
  ASSERT_TRUE(script_->awaitPosted(2));
  for (int i = 0; i < 10; ++i) ends.push_back(write(2, bulkSoon(), 10));  // three by number
  ASSERT_TRUE(script_->awaitPosted(5));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(script_->postedCount(), 5u);
  for (size_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(script_->awaitPosted(i + 1));
    std::this_thread::sleep_for(milliseconds(2));
    EXPECT_LE(script_->postedCount(), i + 5);
    uint64_t id;
    {
      std::lock_guard lock(script_->mutex);
      id = script_->posted[i];
    }
    script_->complete({.isArrival = false, .id = id, .data = 0, .status = {}});
  }
  for (BulkEnd& end : ends) EXPECT_TRUE(end.wait().ok());
  // One longer than the bound goes alone.
  BulkEnd longer = write(1, bulkSoon(), 9000);
  EXPECT_TRUE(script_->awaitPosted(21));
}

TEST_F(BulkDeviceFaults, CountACompletionOnce_WhateverTheDeviceSays) {
  BulkEnd end = write(1, bulkSoon());
  ASSERT_TRUE(script_->awaitPosted(1));
  for (int i = 0; i < 3; ++i) script_->complete({.isArrival = false, .id = script_->posted[0], .data = 0, .status = {}});
  script_->complete({.isArrival = false, .id = 12345, .data = 0, .status = absl::UnavailableError("of nobody")});
  EXPECT_TRUE(end.wait().ok());
  script_->complete({.isArrival = true, .id = 0, .data = 77, .status = {}});
  EXPECT_TRUE(arrivals_.await(1));
  EXPECT_EQ(transport_->traffic().writes, 1u);
}

TEST_F(BulkDeviceFaults, FailWhatWaitsForABrokenConnection_AndNothingElse) {
  BulkOptions options = bulkOptions(0, 3);
  options.maxInFlightPerPeer = 1;
  transport_ = nullptr;
  make(std::move(options));
  BulkEnd first = write(1, bulkSoon()), second = write(1, bulkSoon()), other = write(2, bulkSoon());
  ASSERT_TRUE(script_->awaitPosted(2));
  script_->complete({.isArrival = false, .id = 1, .data = 0, .status = absl::UnavailableError("connection reset")});
  for (BulkEnd* end : {&first, &second}) {
    const absl::Status status = end->wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("machine 1 process 0 (one): connection reset"));
  }
  EXPECT_FALSE(other.ready(20));
  script_->complete({.isArrival = false, .id = 2, .data = 0, .status = {}});
  EXPECT_TRUE(other.wait().ok());
}

TEST_F(BulkDeviceFaults, PassOnWhyMemoryIsRefused) {
  script_->registration = absl::ResourceExhaustedError("locked memory is used up");
  auto refused = transport_->registerMemory(makeBlock(10)->span(), BulkAccess::kSource, nullptr);
  EXPECT_EQ(refused.status(), absl::ResourceExhaustedError("locked memory is used up"));
  script_->registration = absl::OkStatus();
  EXPECT_NE(region(), nullptr);  // and nothing is counted for what was refused
}

TEST_F(BulkDeviceFaults, KeepMemoryOfALostPeer_UntilNothingCanTouchIt) {
  script_->closesConnections = false;
  ASSERT_TRUE(transport_->grant(region(), 1).ok());
  BulkEnd end = write(1, bulkSoon());
  ASSERT_TRUE(script_->awaitPosted(1));
  transport_->failPeer(1, absl::UnavailableError("lost"));
  EXPECT_THAT(std::string(end.wait().message()), HasSubstr("lost"));
  BulkEnd drained;
  transport_->drain(region_, bulkSoon(50), drained.done());
  EXPECT_EQ(drained.wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(watched_.expired());
  transport_->close(absl::OkStatus());
  EXPECT_TRUE(watched_.expired());
}

TEST_F(BulkDeviceFaults, LetMemoryOfALostPeerGo_WhereUnregisteringIsFinal) {
  script_->closesConnections = false;
  script_->unregisteringIsFinal = true;
  ASSERT_TRUE(transport_->grant(region(), 1).ok());
  transport_->failPeer(1, absl::UnavailableError("lost"));
  BulkEnd drained;
  transport_->drain(region_, bulkSoon(), drained.done());
  EXPECT_TRUE(drained.wait().ok());
  EXPECT_TRUE(watched_.expired());
}

// libfabric's objects in front of a provider whose hardware has no room for more memory.
struct RefusingProvider {
  explicit RefusingProvider(const std::string& provider, int error) : name(provider) {
    refusal = error;
    fabricAttributes.prov_name = name.data();
    domainAttributes.mr_key_size = 8;
    info.fabric_attr = &fabricAttributes;
    info.domain_attr = &domainAttributes;
    close.close = [](fid*) { return 0; };
    registration.reg = [](fid*, const void*, size_t, uint64_t, uint64_t, uint64_t, uint64_t, fid_mr**, void*) { return -refusal; };
    domain.fid.ops = &close;
    domain.mr = &registration;
    objects.domain.reset(&domain);
  }
  static inline int refusal = 0;
  std::string name;
  fi_fabric_attr fabricAttributes{};
  fi_domain_attr domainAttributes{};
  fi_info info{};
  fi_ops close{};
  fi_ops_mr registration{};
  fid_domain domain{};
  FabricObjects objects;
};

// There is no hardware to lock memory for: the provider is made up, the way from its refusal to the message is not.
TEST(FabricRegistration, NamesTheLimitOfLockedMemory_AndHowToRaiseIt) {
  const auto library = loadFabricLibrary();
  ASSERT_TRUE(library.ok()) << library.status();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  rlimit lowered = before;
  lowered.rlim_cur = std::min<rlim_t>(before.rlim_cur, 65'536);
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &lowered), 0);
  auto block = makeBlock(1'000'000);
  const auto refusedBy = [&](const char* provider, int error) {
    RefusingProvider refusing(provider, error);
    return registerFabricMemory(**library, refusing.info, refusing.objects, block->span(), BulkAccess::kRemoteRead).status();
  };
  for (int error : {FI_ENOMEM, FI_EAGAIN, FI_EPERM}) {
    const absl::Status status = refusedBy("verbs;ofi_rxm", error);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot register 1000000 bytes with verbs;ofi_rxm"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("may lock ", lowered.rlim_cur, " bytes (RLIMIT_MEMLOCK)")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -l"));
  }
  // Nothing is locked for sockets, and other reasons are not about memory.
  EXPECT_THAT(std::string(refusedBy("tcp;ofi_rxm", FI_ENOMEM).message()), ::testing::Not(HasSubstr("RLIMIT_MEMLOCK")));
  EXPECT_EQ(refusedBy("verbs;ofi_rxm", FI_EINVAL).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(FabricAddresses, SayWhatDiffers) {
  const FabricAddress own{"tcp;ofi_rxm", "256", 2, "0123456789abcdef"};
  auto back = decodeFabricAddress(encodeFabricAddress(own));
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(checkFabricAddresses(own, *back).ok());
  FabricAddress other = own;
  other.provider = "verbs;ofi_rxm";
  EXPECT_THAT(std::string(checkFabricAddresses(own, other).message()), HasSubstr("FARHOP_FABRIC"));
  other = own;
  other.bufferSize = "16384";
  EXPECT_THAT(std::string(checkFabricAddresses(own, other).message()), HasSubstr("FI_OFI_RXM_BUFFER_SIZE"));
  other = own;
  other.format = 3;
  EXPECT_EQ(checkFabricAddresses(own, other).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FabricAddresses, AreRefused_WhenCutOrTooLong) {
  const std::string bytes = encodeFabricAddress({"tcp;ofi_rxm", "256", 2, "0123456789abcdef"});
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decodeFabricAddress(bytes.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(decodeFabricAddress(bytes + "x").ok());
  EXPECT_FALSE(decodeFabricAddress(encodeFabricAddress({"tcp", "", 2, std::string(1000, 'x')})).ok());
}

}  // namespace
}  // namespace farhop::rpc
