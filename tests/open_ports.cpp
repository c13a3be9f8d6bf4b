#include "tests/open_ports.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include "base/socket.h"

namespace farhop::testing {

std::set<uint16_t> listeningPorts(int pid) {
  const std::string base = "/proc/" + std::to_string(pid);
  std::map<std::string, uint16_t> portOfInode;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream in(base + table);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmit, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmit >> uid >> timeout >> inode;
      if (state == "0A") portOfInode[inode] = static_cast<uint16_t>(std::stoul(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  std::set<uint16_t> ports;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(base + "/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind("socket:[", 0) != 0) continue;
    const auto found = portOfInode.find(target.substr(8, target.size() - 9));
    if (found != portOfInode.end()) ports.insert(found->second);
  }
  return ports;
}

void pester(uint16_t port) {
  std::mt19937 random(port);
  const auto soon = [] { return Deadline::after(std::chrono::milliseconds(1000)); };
  for (int round = 0; round < 20; ++round) {
    auto socket = connectTcp({"127.0.0.1", port}, soon(), false);
    if (!socket.ok()) continue;
    std::string bytes;
    switch (round % 5) {
      case 0: break;  // a scan
      case 1: bytes = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"; break;
      case 2: bytes.assign(20, static_cast<char>(random())); break;
      case 3: bytes = std::string("\x01\x00\x00\x00", 4); break;
      default:
        for (int i = 0; i < 100'000; ++i) bytes += static_cast<char>(random());
    }
    (void)sendAll(socket->get(), bytes.data(), bytes.size(), soon());
  }
}

}  // namespace farhop::testing
