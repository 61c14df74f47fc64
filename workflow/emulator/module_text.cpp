#include "module_text.h"

#include <cctype>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "errors.h"
#include "text.h"

namespace ptx {

namespace {

// A .loc directive: where an instruction comes from, and where the function holding it was inlined.
struct Location {
    uint32_t file = 0;
    uint32_t line = 0;
    uint32_t column = 0;
    int inlined_at = -1;  // index of the location of the call
};

bool starts_with(std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}

// `.loc` but not `.local`.
bool is_directive(std::string_view text, std::string_view name) {
    return starts_with(text, name) && text.size() > name.size() &&
           std::isspace(static_cast<unsigned char>(text[name.size()]));
}

bool ends_with(std::string_view text, std::string_view suffix) {
    return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

class ModuleParser {
  public:
    explicit ModuleParser(std::string_view text) : text_(text) {}

    ModuleText parse() {
        while (skip_blanks()) {
            if (take_line_directive()) continue;
            parse_top_level();
        }
        resolve_locations();
        return std::move(module_);
    }

  private:
    // Moves past white space and comments; false at the end of the text.
    bool skip_blanks() {
        while (at_ < text_.size()) {
            if (std::isspace(static_cast<unsigned char>(text_[at_])))
                ++at_;
            else if (starts_with(text_.substr(at_), "//"))
                at_ = std::min(text_.find('\n', at_), text_.size());
            else if (starts_with(text_.substr(at_), "/*"))
                at_ = std::min(text_.find("*/", at_), text_.size() - 2) + 2;
            else
                return true;
        }
        return false;
    }

    std::string_view rest_of_line() {
        const size_t end = std::min(text_.find('\n', at_), text_.size());
        const std::string_view line = text_.substr(at_, end - at_);
        at_ = end;
        return line;
    }

    // Directives that end with their line instead of a semicolon.
    bool take_line_directive() {
        const std::string_view here = text_.substr(at_);
        if (is_directive(here, ".loc")) {
            read_location(std::string(rest_of_line()));
        } else if (is_directive(here, ".file")) {
            read_file(std::string(rest_of_line()));
        } else if (is_directive(here, ".target")) {
            std::sscanf(std::string(rest_of_line()).c_str(), ".target sm_%u", &module_.architecture);
        } else if (is_directive(here, ".version") || is_directive(here, ".address_size")) {
            rest_of_line();
        } else if (is_directive(here, ".section")) {
            at_ = std::min(text_.find('{', at_), text_.size());
            skip_braces();
        } else {
            return false;
        }
        return true;
    }

    void read_file(const std::string& line) {
        const size_t open = line.find('"');
        const size_t close = line.rfind('"');
        unsigned number = 0;
        if (open == std::string::npos || close <= open || std::sscanf(line.c_str(), ".file %u", &number) != 1)
            return;
        module_.files[number] = line.substr(open + 1, close - open - 1);
    }

    void read_location(const std::string& line) {
        Location here;
        if (std::sscanf(line.c_str(), ".loc %u %u %u", &here.file, &here.line, &here.column) < 2) return;
        const char* call = std::strstr(line.c_str(), "inlined_at");
        Location caller;
        if (call != nullptr &&
            std::sscanf(call, "inlined_at %u %u %u", &caller.file, &caller.line, &caller.column) == 3) {
            const auto key = std::make_tuple(caller.file, caller.line, caller.column);
            const auto known = location_index_.find(key);
            if (known != location_index_.end()) {
                here.inlined_at = known->second;
            } else {
                here.inlined_at = static_cast<int>(locations_.size());
                location_index_[key] = here.inlined_at;
                locations_.push_back(caller);
            }
        }
        current_location_ = static_cast<int>(locations_.size());
        location_index_[std::make_tuple(here.file, here.line, here.column)] = current_location_;
        locations_.push_back(here);
    }

    // Moves past a balanced pair of braces that opens here.
    void skip_braces() {
        int depth = 0;
        for (; at_ < text_.size(); ++at_) {
            if (text_[at_] == '{') ++depth;
            if (text_[at_] == '}' && --depth == 0) {
                ++at_;
                return;
            }
        }
    }

    // Text up to one of `stops` outside brackets, comments left out; the stop itself stays.
    std::string read_until(const char* stops) {
        std::string read;
        int depth = 0;
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (starts_with(text_.substr(at_), "//") || starts_with(text_.substr(at_), "/*")) {
                skip_blanks();
                read += ' ';
                continue;
            }
            if (depth == 0 && std::strchr(stops, c) != nullptr) return read;
            if (c == '(' || c == '[' || c == '{') ++depth;
            if (c == ')' || c == ']' || c == '}') --depth;
            read += c;
            ++at_;
        }
        throw BadArgument("PTX ends in the middle of: " + one_line(read).substr(0, 80));
    }

    void parse_top_level() {
        std::string head = read_until(";{=");
        const char stop = text_[at_];
        if (stop == '=') {  // an initialiser, which may hold braces
            ++at_;
            const std::string values = read_until(";");
            ++at_;
            add_variable(head, values);
        } else if (stop == ';') {
            ++at_;
            add_variable(head, "");
        } else if (head.find(".entry") != std::string::npos) {
            ++at_;
            parse_entry(head);
        } else {
            skip_braces();  // a device function: only a call of it would matter, and that names it
        }
    }

    void add_variable(const std::string& head, const std::string& values) {
        Variable variable;
        if (!parse_variable(head, variable)) return;
        if (!values.empty()) read_initial(values, variable);
        module_.variables.push_back(std::move(variable));
    }

    void read_initial(const std::string& values, Variable& variable) {
        std::string_view inside = trim(values);
        if (!inside.empty() && inside.front() == '{') inside = inside.substr(1, inside.rfind('}') - 1);
        const std::vector<std::string> items = split(inside, ',');
        for (const std::string& item : items) {
            uint64_t bits = 0;
            const bool float_bits =
                item.size() > 2 && item[0] == '0' && std::strchr("fFdD", item[1]) != nullptr;
            if (!parse_integer(float_bits ? "0x" + item.substr(2) : item, bits)) {
                variable.unknown_initial = true;
                return;
            }
            for (uint64_t byte = 0; byte < variable.element_bytes; ++byte)
                variable.initial.push_back(static_cast<uint8_t>(bits >> (8 * byte)));
        }
        variable.initial.resize(variable.bytes);
    }

    void parse_entry(const std::string& head) {
        EntryText entry;
        const size_t open = head.find('(');
        const size_t close = head.rfind(')');
        const size_t keyword = head.find(".entry") + 6;
        entry.name = std::string(trim(head.substr(keyword, std::min(open, head.size()) - keyword)));
        std::string directives;
        if (open != std::string::npos) {
            for (const std::string& parameter : split(head.substr(open + 1, close - open - 1), ','))
                if (!parameter.empty()) add_parameter(parameter, entry);
            directives = head.substr(close + 1);
        }
        for (const char* limit : {".maxntid", ".reqntid"}) {
            const size_t found = directives.find(limit);
            if (found == std::string::npos) continue;
            unsigned x = 1;
            unsigned y = 1;
            unsigned z = 1;
            std::sscanf(directives.c_str() + found + 8, " %u , %u , %u", &x, &y, &z);
            entry.max_threads = x * y * z;
        }
        parse_body(entry);
        module_.entries.push_back(std::move(entry));
    }

    static void add_parameter(const std::string& text, EntryText& entry) {
        Parameter parameter;
        Type type = Type::None;
        uint64_t count = 1;
        std::string head = text;
        const size_t bracket = text.find('[');
        if (bracket != std::string::npos) {
            parse_integer(text.substr(bracket + 1, text.find(']') - bracket - 1), count);
            head = text.substr(0, bracket);
        }
        // `.param .u64 .ptr .global .align 4 name`: the first scalar type is the parameter's; an .align after
        // .ptr tells of what it points to.
        const std::vector<std::string> words = split(one_line(head), ' ');
        bool pointer = false;
        for (size_t i = 0; i < words.size(); ++i) {
            if (words[i] == ".ptr") pointer = true;
            if (words[i] == ".align" && !pointer && i + 1 < words.size())
                parameter.alignment = static_cast<uint32_t>(std::stoul(words[i + 1]));
            if (type == Type::None && words[i].size() > 1) type = parse_type(words[i].substr(1));
        }
        parameter.name = words.back();
        parameter.bytes = static_cast<uint32_t>(bytes_of(type) * count);
        parameter.alignment = std::max(parameter.alignment, bytes_of(type));
        if (parameter.bytes == 0) throw BadArgument("parameter of unknown size: " + text);
        entry.parameter_bytes =
            (entry.parameter_bytes + parameter.alignment - 1) / parameter.alignment * parameter.alignment;
        parameter.offset = entry.parameter_bytes;
        entry.parameter_bytes += parameter.bytes;
        entry.parameters.push_back(std::move(parameter));
    }

    void parse_body(EntryText& entry) {
        current_location_ = -1;
        int depth = 1;
        while (skip_blanks()) {
            if (take_line_directive()) continue;
            const char c = text_[at_];
            if (c == '{' || c == '}') {
                ++at_;
                depth += c == '{' ? 1 : -1;
                if (depth == 0) return;
                add_statement(entry, c == '{' ? StatementKind::OpenScope : StatementKind::CloseScope, "");
                continue;
            }
            const std::string text = read_statement();
            if (text.back() == ':')
                add_statement(entry, StatementKind::Label, text.substr(0, text.size() - 1));
            else if (text[0] == '.')
                add_statement(entry, StatementKind::Declaration, text);
            else
                add_statement(entry, StatementKind::Instruction, text);
        }
        throw BadArgument("PTX ends in the middle of entry " + entry.name);
    }

    // A statement without its semicolon, or a label with its colon.
    std::string read_statement() {
        size_t end = at_;
        while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) ||
                                      std::strchr("_$%", text_[end]) != nullptr))
            ++end;
        if (end > at_ && end < text_.size() && text_[end] == ':' && !starts_with(text_.substr(end), "::")) {
            std::string label(text_.substr(at_, end - at_ + 1));
            at_ = end + 1;
            return label;
        }
        std::string statement = one_line(read_until(";"));
        ++at_;
        if (statement.empty()) statement = ".";  // a lone semicolon
        return statement;
    }

    void add_statement(EntryText& entry, StatementKind kind, std::string text) {
        // The location's index for now: file names come at the end of the text.
        const SourceLine source{0, static_cast<uint32_t>(current_location_ + 1)};
        entry.body.push_back({kind, std::move(text), source});
    }

    // A function of a toolkit header inlined in the kernel is reported at the kernel's line that calls it.
    void resolve_locations() {
        for (EntryText& entry : module_.entries) {
            for (Statement& statement : entry.body) {
                int index = static_cast<int>(statement.source.line) - 1;
                if (index < 0) continue;
                while (locations_[index].inlined_at >= 0 && !is_cuda_source(locations_[index].file))
                    index = locations_[index].inlined_at;
                statement.source = {locations_[index].file, locations_[index].line};
            }
        }
    }

    bool is_cuda_source(uint32_t file) const {
        const auto found = module_.files.find(file);
        if (found == module_.files.end()) return false;
        return ends_with(found->second, ".cu") || ends_with(found->second, ".cuh");
    }

    std::string_view text_;
    size_t at_ = 0;
    ModuleText module_;
    std::vector<Location> locations_;
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> location_index_;
    int current_location_ = -1;
};

Space parse_space(const std::string& word) {
    if (word == ".shared") return Space::Shared;
    if (word == ".local") return Space::Local;
    if (word == ".global") return Space::Global;
    if (word == ".const") return Space::Constant;
    return Space::Generic;
}

}  // namespace

bool parse_variable(std::string_view declaration, Variable& variable) {
    std::string head(declaration);
    uint64_t count = 1;
    const size_t bracket = head.find('[');
    if (bracket != std::string::npos) {
        const std::string dimensions = head.substr(bracket);
        head.resize(bracket);
        for (size_t open = 0; open != std::string::npos; open = dimensions.find('[', open + 1)) {
            uint64_t extent = 0;
            parse_integer(dimensions.substr(open + 1, dimensions.find(']', open) - open - 1), extent);
            count *= extent;
        }
    }
    const std::vector<std::string> words = split(one_line(head), ' ');
    Type type = Type::None;
    uint32_t vector = 1;
    for (size_t i = 0; i < words.size(); ++i) {
        const Space space = parse_space(words[i]);
        if (space != Space::Generic) variable.space = space;
        if (words[i] == ".align" && i + 1 < words.size())
            variable.alignment = static_cast<uint32_t>(std::stoul(words[i + 1]));
        if (words[i] == ".v2") vector = 2;
        if (words[i] == ".v4") vector = 4;
        if (words[i].size() > 1 && parse_type(words[i].substr(1)) != Type::None)
            type = parse_type(words[i].substr(1));
    }
    if (variable.space == Space::Generic || type == Type::None) return false;
    variable.name = words.back();
    variable.bytes = count * vector * bytes_of(type);
    variable.alignment = std::max(variable.alignment, vector * bytes_of(type));
    variable.element_bytes = bytes_of(type);
    return true;
}

ModuleText parse_module(std::string_view text) {
    return ModuleParser(text).parse();
}

}  // namespace ptx
