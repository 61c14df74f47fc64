#include "text.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>

namespace ptx {

std::string_view trim(std::string_view text) {
    const char* blanks = " \t\r\n";
    const size_t first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> pieces;
    int depth = 0;
    size_t start = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '[' || c == '{' || c == '(') ++depth;
        if (c == ']' || c == '}' || c == ')') --depth;
        if (c == separator && depth == 0) {
            pieces.emplace_back(trim(text.substr(start, i - start)));
            start = i + 1;
        }
    }
    const std::string_view last = trim(text.substr(start));
    if (!last.empty() || !pieces.empty()) pieces.emplace_back(last);
    return pieces;
}

bool is_identifier(std::string_view text) {
    if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
    for (const char c : text)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '$' && c != '%' && c != '.')
            return false;
    return true;
}

bool parse_integer(std::string_view text, uint64_t& value) {
    std::string digits(trim(text));
    const bool negative = !digits.empty() && digits[0] == '-';
    if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.erase(0, 1);
    if (digits.empty() || !std::isdigit(static_cast<unsigned char>(digits[0]))) return false;
    if (digits.back() == 'U' || digits.back() == 'u') digits.pop_back();
    int base = 0;
    if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B')) {
        digits.erase(0, 2);
        base = 2;
    }
    char* end = nullptr;
    errno = 0;
    const uint64_t magnitude = std::strtoull(digits.c_str(), &end, base);
    if (errno != 0 || *end != '\0') return false;
    value = negative ? 0 - magnitude : magnitude;
    return true;
}

std::string one_line(std::string_view text) {
    std::string result;
    for (const char c : trim(text)) {
        const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
        if (!blank)
            result += c;
        else if (result.back() != ' ')
            result += ' ';
    }
    return result;
}

}  // namespace ptx
