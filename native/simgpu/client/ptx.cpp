#include "ptx.h"

#include <cctype>
#include <cstdlib>

namespace vgpu::sim {
namespace {

// Words (identifiers, directives, numbers) and single punctuation marks, without comments.
std::vector<std::string> tokens(const std::string& text) {
  std::vector<std::string> result;
  const auto is_word = [](char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.'; };
  for (size_t i = 0; i < text.size();) {
    if (isspace(static_cast<unsigned char>(text[i]))) {
      ++i;
    } else if (text.compare(i, 2, "//") == 0) {
      i = text.find('\n', i);
      if (i == std::string::npos) break;
    } else if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i);
      if (i == std::string::npos) break;
      i += 2;
    } else if (is_word(text[i])) {
      size_t end = i;
      while (end < text.size() && is_word(text[end])) ++end;
      result.push_back(text.substr(i, end - i));
      i = end;
    } else {
      result.emplace_back(1, text[i++]);
    }
  }
  return result;
}

// Bytes of `.u32`, `.f64`, `.b8` and the like; 0 for what is no type.
uint32_t type_size(const std::string& token) {
  if (token.size() < 3 || token[0] != '.' || std::string("usbf").find(token[1]) == std::string::npos) return 0;
  const std::string bits = token.substr(2);
  return bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
}

// One `.param` declaration, `begin` to `end` of the tokens.
bool parse_parameter(const std::vector<std::string>& all, size_t begin, size_t end, uint32_t& size, uint32_t& alignment) {
  uint32_t element = 0, count = 1;
  alignment = 0;
  bool of_pointee = false;
  for (size_t i = begin; i < end; ++i) {
    if (const uint32_t found = type_size(all[i])) element = found;
    else if (all[i] == ".ptr") of_pointee = true;
    else if (all[i] == ".align" && i + 1 < end && !of_pointee) alignment = uint32_t(strtoul(all[i + 1].c_str(), nullptr, 10));
    else if (all[i] == "[" && i + 1 < end) count = uint32_t(strtoul(all[i + 1].c_str(), nullptr, 10));
  }
  if (!alignment) alignment = element;
  size = element * count;
  return size != 0 && alignment != 0 && (alignment & (alignment - 1)) == 0;
}

}  // namespace

bool parse_ptx(const std::string& text, std::vector<Entry>& entries) {
  const std::vector<std::string> all = tokens(text);
  if (all.size() < 2 || all[0] != ".version") return false;
  std::vector<Entry> found;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i] != ".entry") continue;
    Entry entry;
    entry.name = all[++i];
    if (i + 1 < all.size() && all[i + 1] == "(") {
      i += 2;
      uint32_t offset = 0;
      while (i < all.size() && all[i] != ")") {
        size_t end = i;
        while (end < all.size() && all[end] != "," && all[end] != ")") ++end;
        uint32_t size, alignment;
        if (!parse_parameter(all, i, end, size, alignment)) return false;
        offset = (offset + alignment - 1) / alignment * alignment;
        entry.parameters.push_back({offset, size});
        offset += size;
        i = end < all.size() && all[end] == "," ? end + 1 : end;
      }
      if (i == all.size()) return false;
    }
    found.push_back(std::move(entry));
  }
  entries = std::move(found);
  return true;
}

}  // namespace vgpu::sim
