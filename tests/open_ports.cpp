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

namespace {

struct Socket {
  std::string local, remote, state;  // as /proc writes them
};

// The TCP sockets that a process holds.
std::vector<Socket> socketsOf(int pid) {
  const std::string base = "/proc/" + std::to_string(pid);
  std::map<std::string, Socket> socketOfInode;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream in(base + table);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string slot, queues, timer, retransmit, uid, timeout, inode;
      Socket socket;
      fields >> slot >> socket.local >> socket.remote >> socket.state >> queues >> timer >> retransmit >> uid >>
          timeout >> inode;
      socketOfInode[inode] = socket;
    }
  }
  std::vector<Socket> sockets;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(base + "/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind("socket:[", 0) != 0) continue;
    const auto found = socketOfInode.find(target.substr(8, target.size() - 9));
    if (found != socketOfInode.end()) sockets.push_back(found->second);
  }
  return sockets;
}

constexpr char kListening[] = "0A";
constexpr char kEstablished[] = "01";

}  // namespace

std::set<uint16_t> listeningPorts(int pid) {
  std::set<uint16_t> ports;
  for (const Socket& socket : socketsOf(pid)) {
    if (socket.state != kListening) continue;
    ports.insert(static_cast<uint16_t>(std::stoul(socket.local.substr(socket.local.rfind(':') + 1), nullptr, 16)));
  }
  return ports;
}

std::vector<std::vector<int>> connectionsBetween(const std::vector<int>& pids) {
  std::map<std::string, size_t> ownerOf;  // by "local remote"
  std::vector<std::vector<Socket>> sockets;
  for (size_t i = 0; i < pids.size(); ++i) {
    sockets.push_back(socketsOf(pids[i]));
    for (const Socket& socket : sockets[i]) {
      if (socket.state == kEstablished) ownerOf[socket.local + " " + socket.remote] = i;
    }
  }
  std::vector<std::vector<int>> counts(pids.size(), std::vector<int>(pids.size(), 0));
  for (size_t i = 0; i < pids.size(); ++i) {
    for (const Socket& socket : sockets[i]) {
      const auto other = ownerOf.find(socket.remote + " " + socket.local);
      if (socket.state == kEstablished && other != ownerOf.end()) ++counts[i][other->second];
    }
  }
  return counts;
}

int pester(uint16_t port) {
  int made = 0;
  std::mt19937 random(port);
  const auto soon = [] { return Deadline::after(std::chrono::milliseconds(1000)); };
  for (int round = 0; round < 20; ++round) {
    auto socket = connectTcp({"127.0.0.1", port}, soon(), false);
    if (!socket.ok()) continue;
    ++made;
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
  return made;
}

}  // namespace farhop::testing
