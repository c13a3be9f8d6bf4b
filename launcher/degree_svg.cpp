#include <algorithm>
#include <cmath>

#include "launcher/degree_figures.h"
#include "launcher/text_table.h"

namespace farhop::launcher {
namespace {

// Sizes in the picture's own units, pixels where nobody scales it.
constexpr int kPanelWidth = 460, kPanelHeight = 250;
constexpr int kLeft = 64, kTop = 44, kRight = 12, kBottom = 44;
constexpr int kPlotWidth = kPanelWidth - kLeft - kRight, kPlotHeight = kPanelHeight - kTop - kBottom;
constexpr char kInColor[] = "#2b6cb0", kOutColor[] = "#c05621";

// Text between tags. Names may hold anything; XML 1.0 has no way to write most control characters.
std::string escaped(absl::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return result;
}

std::string textAt(double x, double y, const char* anchor, absl::string_view text) {
  return absl::StrCat("<text x=\"", formatFixed(x, 1), "\" y=\"", formatFixed(y, 1), "\" text-anchor=\"", anchor, "\">",
                      escaped(text), "</text>\n");
}

// Decades of the scale of nodes: 10^n is at least the highest bar.
int decadesOf(const DegreeFigures& figures) {
  int decades = 1;
  uint64_t top = 10;
  const uint64_t most = *std::max_element(figures.buckets.begin(), figures.buckets.end());
  while (top < most && decades < 19) {
    top *= 10;
    ++decades;
  }
  return decades;
}

// One node has a height too, so that rare hubs can be seen: a bar begins half a node below 1.
double heightOf(uint64_t nodes, int decades) {
  if (nodes == 0) return 0;
  const double below = std::log10(2.0);
  return (std::log10(static_cast<double>(nodes)) + below) / (decades + below) * kPlotHeight;
}

std::string panel(const std::string& title, const DegreeFigures& figures, const char* color) {
  const size_t buckets = figures.usedBuckets();
  const int decades = decadesOf(figures);
  std::string svg = textAt(kLeft, 18, "start", title);
  svg += textAt(kLeft, 34, "start",
                absl::StrCat(formatCount(figures.nodes), " nodes, mean ", formatFixed(figures.mean(), 1), ", largest ",
                             formatCount(figures.largest),
                             figures.largest == 0 ? "" : absl::StrCat(" (node ", figures.largestNode, ")")));
  uint64_t label = 1;
  for (int d = 0; d <= decades; ++d, label *= 10) {
    const double y = kTop + kPlotHeight - heightOf(label, decades);
    absl::StrAppend(&svg, "<line x1=\"", kLeft, "\" x2=\"", kLeft + kPlotWidth, "\" y1=\"", formatFixed(y, 1),
                    "\" y2=\"", formatFixed(y, 1), "\" stroke=\"#ddd\"/>\n");
    // Of many decades every third has a label, as thousands, millions, ... do.
    if (decades <= 6 || d % 3 == 0) svg += textAt(kLeft - 6, y + 4, "end", formatCount(label));
  }
  const double step = static_cast<double>(kPlotWidth) / static_cast<double>(buckets);
  const size_t labelEvery = (buckets + 8) / 9;
  for (size_t b = 0; b < buckets; ++b) {
    const double x = kLeft + step * static_cast<double>(b), height = heightOf(figures.buckets[b], decades);
    absl::StrAppend(&svg, "<rect x=\"", formatFixed(x + step * 0.1, 1), "\" y=\"",
                    formatFixed(kTop + kPlotHeight - height, 1), "\" width=\"", formatFixed(step * 0.8, 1),
                    "\" height=\"", formatFixed(height, 1), "\" fill=\"", color, "\"><title>degree ",
                    degreeRangeText(b), ": ", formatCount(figures.buckets[b]), " nodes</title></rect>\n");
    if (b % labelEvery == 0) {
      svg += textAt(x + step / 2, kTop + kPlotHeight + 16, "middle", std::to_string(degreeRange(b).first));
    }
  }
  return svg + textAt(kLeft + kPlotWidth / 2.0, kPanelHeight - 8, "middle", "degree, from (powers of two)");
}

}  // namespace

std::string degreesSvg(const partition::Schema& schema, const StoreDegrees& degrees) {
  const int rows = std::max(1, static_cast<int>(degrees.relations.size()));
  std::string svg = absl::StrCat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", 2 * kPanelWidth,
      "\" height=\"", rows * kPanelHeight, "\" viewBox=\"0 0 ", 2 * kPanelWidth, " ", rows * kPanelHeight,
      "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  for (size_t i = 0; i < degrees.relations.size(); ++i) {
    const RelationDegrees& relation = degrees.relations[i];
    const std::string name = schema.relationText(relation.relation);
    const int y = static_cast<int>(i) * kPanelHeight;
    absl::StrAppend(&svg, "<g transform=\"translate(0 ", y, ")\">\n", panel(name + ", in-degree", relation.in, kInColor),
                    "</g>\n<g transform=\"translate(", kPanelWidth, " ", y, ")\">\n",
                    panel(name + ", out-degree", relation.out, kOutColor), "</g>\n");
  }
  return svg + "</svg>\n";
}

}  // namespace farhop::launcher
