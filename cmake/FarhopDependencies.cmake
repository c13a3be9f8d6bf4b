# Every third-party dependency, found once. Names on the right are Debian 12 packages.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)           # libabsl-dev
find_package(glog REQUIRED)           # libgoogle-glog-dev
find_package(nlohmann_json REQUIRED)  # nlohmann-json3-dev
find_package(yaml-cpp REQUIRED)       # libyaml-cpp-dev
find_package(prometheus-cpp REQUIRED) # prometheus-cpp-dev
find_package(CLI11 REQUIRED)          # libcli11-dev
find_package(Tensorpipe REQUIRED)     # libtensorpipe-dev
find_package(Gloo REQUIRED)           # libgloo-dev
find_package(Libfabric REQUIRED)      # libfabric-dev (headers; libfabric1 at run time)
find_package(METIS REQUIRED)          # libmetis-dev
find_package(XxHash REQUIRED)         # libxxhash-dev
find_package(Hwloc REQUIRED)          # libhwloc-dev
find_package(ZLIB REQUIRED)           # zlib1g-dev
find_package(Zstd REQUIRED)           # libzstd-dev
if(FARHOP_WITH_TORCH)
  find_package(Torch REQUIRED)        # libtorch-dev
endif()
if(FARHOP_BUILD_TESTS)
  find_package(GTest REQUIRED)        # libgtest-dev, libgmock-dev
endif()
