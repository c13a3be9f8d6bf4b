#include "launcher/output_pump.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "base/file.h"
#include "tests/temporary_directory.h"

namespace farhop::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using Piece = std::pair<std::string, bool>;

std::vector<Piece> cut(const std::vector<std::string>& chunks) {
  std::vector<Piece> pieces;
  LineCutter cutter;
  const auto emit = [&](absl::string_view piece, bool endsLine) {
    pieces.emplace_back(std::string(piece), endsLine);
  };
  for (const std::string& chunk : chunks) cutter.feed(chunk, emit);
  cutter.finish(emit);
  return pieces;
}

TEST(LineCutter, JoinsLinesAcrossReads) {
  EXPECT_THAT(cut({"ab", "c\nd", "\n", "\ne"}),
              ElementsAre(Pair("abc", true), Pair("d", true), Pair("", true), Pair("e", false)));
  EXPECT_THAT(cut({}), ElementsAre());
  EXPECT_THAT(cut({std::string("\0\xff\n", 3)}), ElementsAre(Pair(std::string("\0\xff", 2), true)));
}

TEST(LineCutter, KeepsALineOfExactlyTheLimitWhole) {
  const std::string full(LineCutter::kMaxPieceBytes, 'x');
  EXPECT_THAT(cut({full + "\n"}), ElementsAre(Pair(full, true)));
  EXPECT_THAT(cut({full, "\n"}), ElementsAre(Pair(full, true)));
  EXPECT_THAT(cut({full, "y\n"}), ElementsAre(Pair(full, false), Pair("y", true)));
}

TEST(LineCutter, LosesNothing_HoweverTheBytesArrive) {
  std::mt19937 random(20'240'604);
  for (int round = 0; round < 50; ++round) {
    std::string text;
    for (uint32_t i = 0, lines = random() % 20; i < lines; ++i) {
      text += std::string(random() % 3 == 0 ? random() % 200'000 : random() % 50, 'a') + "\n";
    }
    std::vector<std::string> chunks;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = 1 + random() % 70'000;
      chunks.push_back(text.substr(at, bytes));
      at += bytes;
    }
    std::string joined;
    for (const auto& [piece, endsLine] : cut(chunks)) {
      ASSERT_LE(piece.size(), LineCutter::kMaxPieceBytes);
      joined += piece;
      if (endsLine) joined += '\n';
    }
    ASSERT_EQ(joined, text);
  }
}

// A pump with files in place of the launcher's streams.
class OutputPumpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"out", "err"})
      files_.emplace_back(::open((directory_ / name).c_str(), O_CREAT | O_RDWR, 0600));
    terminals_.out = std::make_shared<Terminal>(files_[0].get());
    terminals_.err = std::make_shared<Terminal>(files_[1].get());
    auto pump = OutputPump::open("m1 p0", 0, directory_ / "log", terminals_);
    ASSERT_TRUE(pump.ok()) << pump.status();
    pump_.emplace(*std::move(pump));
  }

  void send(OutputPump::Stream stream, const std::string& text) { pump_->feed(stream, text); }
  std::string shown(int stream) {
    (stream == 0 ? terminals_.out : terminals_.err)->writeSome();
    return *readFile(directory_ / (stream == 0 ? "out" : "err"));
  }

  testing::TemporaryDirectory directory_;
  std::vector<FileDescriptor> files_;
  Terminals terminals_;
  std::optional<OutputPump> pump_;
};

TEST_F(OutputPumpTest, PrefixesLinesAndKeepsThemInTheLog) {
  send(OutputPump::kOut, "one\ntwo\n");
  send(OutputPump::kErr, "bad\n");
  send(OutputPump::kOut, "\n");
  EXPECT_EQ(shown(0), "[m1 p0] one\n[m1 p0] two\n[m1 p0] \n");
  EXPECT_EQ(shown(1), "[m1 p0] bad\n");
  pump_->finish();
  EXPECT_EQ(*readFile(directory_ / "log"), "one\ntwo\nbad\n\n");
  EXPECT_THAT(pump_->tail(), ElementsAre("one", "two", "bad", ""));
}

TEST_F(OutputPumpTest, ShowsAnUnfinishedLineAtTheEnd) {
  send(OutputPump::kOut, "half");
  EXPECT_EQ(shown(0), "");
  pump_->end(OutputPump::kOut);
  EXPECT_EQ(shown(0), "[m1 p0] half\n");
  EXPECT_EQ(*readFile(directory_ / "log"), "half");
}

TEST_F(OutputPumpTest, CutsLongLines_AndKeepsThemWholeInTheLog) {
  const std::string full(LineCutter::kMaxPieceBytes, 'x');
  send(OutputPump::kOut, full.substr(0, 60'000));
  send(OutputPump::kOut, full.substr(0, 60'000) + "\n");
  const std::string line(120'000, 'x');
  EXPECT_EQ(shown(0), "[m1 p0] " + full + "\n[m1 p0] " + line.substr(full.size()) + "\n");
  EXPECT_EQ(*readFile(directory_ / "log"), line + "\n");
}

TEST_F(OutputPumpTest, KeepsTheOtherStreamOutOfACutLine) {
  const std::string part(60'000, 'x');
  send(OutputPump::kOut, part);
  send(OutputPump::kOut, part.substr(0, 5'536));  // exactly the limit: not yet known whether the line goes on
  send(OutputPump::kOut, "y");
  send(OutputPump::kErr, "error\n");
  send(OutputPump::kOut, "z\n");
  const std::string piece(65'536, 'x');
  EXPECT_EQ(*readFile(directory_ / "log"), piece + "\nerror\nyz\n");
}

TEST_F(OutputPumpTest, RemembersTheLastLines) {
  for (int i = 0; i < 30; ++i) send(OutputPump::kOut, std::to_string(i) + "\n");
  send(OutputPump::kErr, std::string(5'000, 'e') + "\n");
  ASSERT_EQ(pump_->tail().size(), OutputPump::kTailLines);
  EXPECT_EQ(pump_->tail().front(), "11");
  EXPECT_EQ(pump_->tail().back().size(), OutputPump::kTailLineBytes);
}

TEST_F(OutputPumpTest, IsFull_WhileTheTerminalIs) {
  EXPECT_FALSE(pump_->full(OutputPump::kOut));
  terminals_.out->append(std::string(300'000, 'x'));
  EXPECT_TRUE(pump_->full(OutputPump::kOut));
  EXPECT_FALSE(pump_->full(OutputPump::kErr));
  terminals_.out->writeSome();
  EXPECT_FALSE(pump_->full(OutputPump::kOut));
}

TEST_F(OutputPumpTest, KeepsInTheLogWhatIsNotShown) {
  auto quiet = OutputPump::open("m0 p1", 1, directory_ / "quiet", terminals_, {false, true});
  ASSERT_TRUE(quiet.ok()) << quiet.status();
  terminals_.out->append(std::string(300'000, 'x'));
  EXPECT_FALSE(quiet->full(OutputPump::kOut));
  quiet->feed(OutputPump::kOut, "hidden\n");
  quiet->feed(OutputPump::kErr, "shown\n");
  EXPECT_EQ(shown(1), "[m0 p1] shown\n");
  EXPECT_EQ(shown(0), std::string(300'000, 'x'));
  EXPECT_EQ(*readFile(directory_ / "quiet"), "hidden\nshown\n");
  EXPECT_THAT(quiet->tail(), ElementsAre("hidden", "shown"));
}

TEST(Terminal, NeverBlocks_WhenItsReaderDoes) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);  // blocking, as a shell's pipes are
  FileDescriptor read(fds[0]), write(fds[1]);
  Terminal terminal(write.get());
  terminal.append(std::string(1'000'000, 'x'));
  terminal.writeSome();
  EXPECT_TRUE(terminal.full());
  EXPECT_EQ(::fcntl(write.get(), F_GETFL) & O_NONBLOCK, 0);  // the shell's descriptor is untouched
  read.reset();
  ::signal(SIGPIPE, SIG_IGN);
  terminal.writeSome();
  EXPECT_FALSE(terminal.pending());  // nobody reads any more
  terminal.append("more");
  EXPECT_FALSE(terminal.pending());
}

TEST(Terminal, LeavesOut_WhenItsReaderTakesNothingForLong) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  FileDescriptor read(fds[0]), write(fds[1]);
  Terminal terminal(write.get(), std::chrono::milliseconds(50));
  const std::string line = std::string(999, 'x') + "\n";
  for (int i = 0; i < 1'000; ++i) terminal.append(line);
  terminal.writeSome();
  terminal.writeSome();
  EXPECT_TRUE(terminal.full());
  for (const Deadline soon = Deadline::after(std::chrono::seconds(20)); terminal.full() && !soon.expired();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(terminal.full());  // nobody waits for this reader any more
  const size_t pending = terminal.pendingBytes();
  for (int i = 0; i < 7; ++i) terminal.append(line);
  terminal.appendOwn("farhop: failed\n");
  EXPECT_EQ(terminal.pendingBytes(), pending + 15);
  std::string text;
  for (std::vector<char> bytes(1 << 20); text.find("left out") == std::string::npos;) {
    const ssize_t n = ::read(read.get(), bytes.data(), bytes.size());
    ASSERT_GT(n, 0);
    text.append(bytes.data(), static_cast<size_t>(n));
    terminal.writeSome();
  }
  EXPECT_NE(text.find("farhop: failed\nfarhop: 7 lines were left out"), std::string::npos);
  EXPECT_FALSE(terminal.full());
}

}  // namespace
}  // namespace farhop::launcher
