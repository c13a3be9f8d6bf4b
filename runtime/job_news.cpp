#include "runtime/job_news.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace farhop::runtime {
namespace {

constexpr size_t kMaxTextBytes = 400;

std::string plain(std::string text) {
  text.resize(std::min(text.size(), kMaxTextBytes));
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  return text;
}

}  // namespace

std::string encodeJobNews(const ProcessEnded& news) {
  return absl::StrCat("ended\t", news.process.machine, "\t", news.process.proc, "\t", plain(news.process.address), "\t",
                      news.clean ? "clean" : "failed", "\t", plain(news.how));
}

std::optional<ProcessEnded> decodeJobNews(const std::string& message) {
  if (message.size() > kMaxJobNewsBytes) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(message, '\t');
  ProcessEnded news;
  if (fields.size() < 6 || fields[0] != "ended" || !absl::SimpleAtoi(fields[1], &news.process.machine) ||
      !absl::SimpleAtoi(fields[2], &news.process.proc) || (fields[4] != "clean" && fields[4] != "failed")) {
    return std::nullopt;
  }
  news.process.address = plain(fields[3]);
  news.clean = fields[4] == "clean";
  news.how = plain(fields[5]);
  return news;
}

std::string encodeStageNews(const StageReached& news) {
  return absl::StrFormat("stage\t%d\t%d\t%s\t%.3f\t%d", news.machine, news.proc, stateName(news.state), news.seconds,
                         news.peakBytes);
}

std::optional<StageReached> decodeStageNews(const std::string& message) {
  if (message.size() > kMaxJobNewsBytes) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(message, '\t');
  StageReached news;
  if (fields.size() < 6 || fields[0] != "stage" || !absl::SimpleAtoi(fields[1], &news.machine) || news.machine < 0 ||
      !absl::SimpleAtoi(fields[2], &news.proc) || news.proc < 0 || !absl::SimpleAtod(fields[4], &news.seconds) ||
      !(news.seconds >= 0 && news.seconds < 1e9) || !absl::SimpleAtoi(fields[5], &news.peakBytes)) {
    return std::nullopt;
  }
  const auto state = stateOfName(fields[3]);
  if (!state.ok()) return std::nullopt;
  news.state = *state;
  return news;
}

}  // namespace farhop::runtime
