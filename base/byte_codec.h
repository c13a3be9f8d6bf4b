// Little-endian numbers and length-prefixed strings, written to and read from byte strings. A reader never
// reads past its end: it turns to "not ok" and yields zeros, so that a parser checks once, at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace farhop {

class ByteWriter {
 public:
  explicit ByteWriter(std::string* out) : out_(out) {}

  void u8(uint8_t value) { number(value, 1); }
  void u16(uint16_t value) { number(value, 2); }
  void u32(uint32_t value) { number(value, 4); }
  void u64(uint64_t value) { number(value, 8); }
  void raw(std::string_view bytes) { out_->append(bytes); }
  // A u32 length and the bytes.
  void string(std::string_view bytes) {
    u32(static_cast<uint32_t>(bytes.size()));
    raw(bytes);
  }

 private:
  void number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_->push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
  }
  std::string* out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view in) : in_(in) {}

  bool ok() const { return ok_; }
  // For what the caller finds impossible.
  void fail() { ok_ = false; }
  size_t remaining() const { return in_.size(); }
  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  // A view into the input.
  std::string_view raw(size_t bytes) {
    if (bytes > in_.size()) {
      ok_ = false;
      in_ = {};
      return {};
    }
    std::string_view result = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return result;
  }
  // A u32 length, at most `maxBytes`, and that many bytes.
  std::string_view string(size_t maxBytes) {
    const size_t size = u32();
    if (size > maxBytes) ok_ = false;
    return ok_ ? raw(size) : std::string_view();
  }

 private:
  uint64_t number(size_t bytes) {
    const std::string_view field = raw(bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < field.size(); ++i) value |= uint64_t{static_cast<unsigned char>(field[i])} << (8 * i);
    return value;
  }
  std::string_view in_;
  bool ok_ = true;
};

// Compares secrets in time that depends on the lengths only.
inline bool equalInConstantTime(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const unsigned char other = b.empty() ? 0 : static_cast<unsigned char>(b[i % b.size()]);
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ other);
  }
  return difference == 0;
}

}  // namespace farhop
