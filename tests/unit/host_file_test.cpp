// Host files, ssh command lines, and whose output is shown.
#include "launcher/host_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/output_choice.h"
#include "launcher/ssh_command.h"

namespace farhop::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Host only(const std::string& line) {
  const auto hosts = parseHosts(line, "hosts");
  EXPECT_TRUE(hosts.ok()) << hosts.status();
  return hosts.ok() && hosts->size() == 1 ? hosts->front() : Host{};
}

std::string errorOf(const std::string& text) {
  const auto hosts = parseHosts(text, "hosts.txt");
  EXPECT_FALSE(hosts.ok()) << text;
  return std::string(hosts.status().message());
}

TEST(HostFile, HasAMachinePerLine) {
  const auto hosts = parseHosts("# cluster\n\nnode-0\r\n  node-1 2222  # the second\n\t10.0.0.3\n", "hosts");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  ASSERT_EQ(hosts->size(), 3u);
  EXPECT_EQ((*hosts)[0].name, "node-0");
  EXPECT_FALSE((*hosts)[0].port);
  EXPECT_EQ((*hosts)[1].name, "node-1");
  EXPECT_EQ((*hosts)[1].port, 2222);
  EXPECT_EQ((*hosts)[1].line, 4);
  EXPECT_EQ((*hosts)[2].name, "10.0.0.3");
}

TEST(HostFile, TakesSettingsInAnyOrder) {
  const Host host = only("gpu_1.example.org 22 user=kim addr=[fd00::7] slots=8");
  EXPECT_EQ(host.name, "gpu_1.example.org");
  EXPECT_EQ(host.port, 22);
  EXPECT_EQ(host.slots, 8);
  EXPECT_EQ(host.address, "fd00::7");
  EXPECT_EQ(host.user, "kim");
}

TEST(HostFile, TakesIpv6_WithAndWithoutBrackets) {
  EXPECT_EQ(only("fd00::1 2200").name, "fd00::1");
  EXPECT_EQ(only("[fd00::1] 2200").name, "fd00::1");
  EXPECT_EQ(only("fe80::1%eth0").name, "fe80::1%eth0");
}

TEST(HostFile, TakesDglrunsAndDglsLines) {
  const Host dglrun = only("10.0.0.5 30050 worker-1 slots=2");
  EXPECT_EQ(dglrun.name, "10.0.0.5");
  EXPECT_EQ(dglrun.label, "worker-1");
  EXPECT_EQ(dglrun.address, "10.0.0.5");
  EXPECT_EQ(dglrun.slots, 2);
  EXPECT_FALSE(dglrun.port);  // DGL's servers', not sshd's
  EXPECT_FALSE(only("10.0.0.5 30050").port);
  EXPECT_EQ(only("10.0.0.5 2222").port, 2222);
  EXPECT_EQ(only("10.0.0.5").name, "10.0.0.5");
}

TEST(HostFile, NamesTheLineThatIsUnclear) {
  EXPECT_THAT(errorOf("a\nb x\n"), AllOf(HasSubstr("hosts.txt line 2"), HasSubstr("port 'x'")));
  EXPECT_THAT(errorOf("a 0"), HasSubstr("port '0'"));
  EXPECT_THAT(errorOf("a 65536"), HasSubstr("65535"));
  EXPECT_THAT(errorOf("a 22 b slots=2"), HasSubstr("not understood"));
  EXPECT_THAT(errorOf("10.0.0.1 22 b"), HasSubstr("not understood"));
  EXPECT_THAT(errorOf("10.0.0.1 22 b c slots=1"), HasSubstr("not understood"));
  EXPECT_THAT(errorOf("a slots=0"), HasSubstr("slots '0'"));
  EXPECT_THAT(errorOf("a slots=2 slots=2"), HasSubstr("given twice"));
  EXPECT_THAT(errorOf("a slot=2"), HasSubstr("only slots=N"));
  EXPECT_THAT(errorOf("a slots=2 22"), HasSubstr("a port comes before"));
  EXPECT_THAT(errorOf("a addr=b"), HasSubstr("IP address"));
  EXPECT_THAT(errorOf("a user=-l"), HasSubstr("user '-l'"));
  EXPECT_THAT(errorOf("-oProxyCommand=x"), HasSubstr("no host"));
  EXPECT_THAT(errorOf("a:22"), HasSubstr("no host"));
  EXPECT_THAT(errorOf("42"), HasSubstr("no host"));
  EXPECT_THAT(errorOf("a\nb\na"), AllOf(HasSubstr("line 3"), HasSubstr("line 1 already")));
  EXPECT_THAT(errorOf("# nothing\n"), HasSubstr("names no host"));
}

TEST(SshCommand, NeverAsksAndChecksHostKeys_UnlessToldOtherwise) {
  SshOptions options;
  options.options = {"StrictHostKeyChecking=accept-new"};
  options.port = 22;
  options.identity = "/k y";
  Host host = only("h1 2222 user=kim");
  const auto words = sshCommand(options, host, {"/opt/far hop", "agent", "$HOME"});
  const auto at = [&](const std::string& word) { return std::find(words.begin(), words.end(), word) - words.begin(); };
  EXPECT_LT(at("BatchMode=yes"), at("StrictHostKeyChecking=accept-new"));
  EXPECT_LT(at("StrictHostKeyChecking=accept-new"), at("StrictHostKeyChecking=yes"));
  EXPECT_LT(at("ConnectTimeout=10"), at("--"));
  EXPECT_EQ(words[static_cast<size_t>(at("-p")) + 1], "2222");
  EXPECT_EQ(words[static_cast<size_t>(at("-l")) + 1], "kim");
  EXPECT_EQ(words[static_cast<size_t>(at("-i")) + 1], "/k y");
  EXPECT_EQ(words[static_cast<size_t>(at("--")) + 1], "h1");
  EXPECT_EQ(words.back(), "exec '/opt/far hop' agent '$HOME'");
}

TEST(SshCommand, SaysWhatToDo_WhenItFails) {
  const ProcessEnd failed{false, 255};
  EXPECT_THAT(std::string(explainSshEnd(failed, "Host key verification failed.", true).message()), HasSubstr("known_hosts"));
  EXPECT_THAT(std::string(explainSshEnd(failed, "Connection refused", true).message()), HasSubstr("--ssh-port"));
  EXPECT_THAT(std::string(explainSshEnd(failed, "", false).message()), HasSubstr("broke"));
  EXPECT_TRUE(absl::IsNotFound(explainSshEnd(ProcessEnd{false, 127}, "", true)));
}

TEST(OutputChoice, IsOfMachinesAndProcesses) {
  const auto shows = [](const std::string& text, int machine, int proc) {
    const auto choice = OutputChoice::parse(text);
    EXPECT_TRUE(choice.ok()) << choice.status();
    const OutputShown shown = choice->shown(machine, proc);
    return (shown.out ? 1 : 0) + (shown.err ? 2 : 0);
  };
  EXPECT_EQ(shows("all", 1, 1), 3);
  EXPECT_EQ(shows("none", 1, 1), 0);
  EXPECT_EQ(shows("m1", 1, 5), 3);
  EXPECT_EQ(shows("m1", 0, 1), 0);
  EXPECT_EQ(shows("p1,m0p0", 7, 1), 3);
  EXPECT_EQ(shows("p1,m0p0", 0, 0), 3);
  EXPECT_EQ(shows("p1,m0p0", 1, 0), 0);
  EXPECT_EQ(shows("3", 1, 1), 3);
  EXPECT_EQ(shows("2", 1, 1), 2);
  EXPECT_EQ(shows("0:1,1:2", 4, 0), 1);
  EXPECT_EQ(shows("0:1,1:2", 4, 1), 2);
  EXPECT_EQ(shows("0:1,1:2", 4, 2), 0);
  for (const char* text : {"", "4", "m", "p0m1", "0:4", "m0,", "everything", "m0p0x"}) {
    EXPECT_FALSE(OutputChoice::parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace farhop::launcher
