#include "grammar/schema/schema_references.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ascii.h"
#include "base/error.h"
#include "base/function_ref.h"

namespace millrace {
namespace {

bool has_scheme(std::string_view uri) {
  const size_t colon = uri.find(':');
  return colon != std::string_view::npos && colon > 0 && uri.find_first_of("/?#") > colon;
}

// Resolves ".." in a path.
std::string without_dots(std::string uri) {
  const size_t scheme = uri.find("://");
  const size_t root = scheme == std::string::npos ? 0 : std::min(uri.find('/', scheme + 3), uri.size());
  for (size_t at; (at = uri.find("/./", root)) != std::string::npos;) uri.erase(at, 2);
  for (size_t at; (at = uri.find("/../", root)) != std::string::npos;) {
    const size_t parent = at == root ? root : uri.rfind('/', at - 1);
    const size_t from = parent == std::string::npos || parent < root ? root : parent;
    uri.erase(from, at + 3 - from);
  }
  return uri;
}

std::string absolute(const std::string& base, const std::string& reference) {
  if (has_scheme(reference)) return reference;
  if (reference.empty() || reference[0] == '#') return base + reference;
  const size_t scheme = base.find("://");
  const size_t path = scheme == std::string::npos ? 0 : std::min(base.find('/', scheme + 3), base.size());
  if (reference[0] == '/') return base.substr(0, path) + reference;
  const size_t folder = base.rfind('/');
  const bool has_folder = folder != std::string::npos && folder >= path && path < base.size();
  std::string root = has_folder ? base.substr(0, folder + 1) : base.substr(0, path);
  if (!has_folder && scheme != std::string::npos) root += '/';
  return without_dots(root + reference);
}

std::string pointer_part(const std::string& key) {
  std::string part = "/";
  for (const char c : key) {
    part += c == '~' ? "~0" : c == '/' ? "~1" : c == '%' ? "%25" : std::string(1, c);
  }
  return part;
}

struct Place {
  JsonSchema& schema;
  std::string base, pointer;
};

class References {
 public:
  explicit References(JsonSchema& root) : root_(root) {
    const JsonSchema named = root.value("$schema", JsonSchema());
    const std::string draft = named.is_string() ? named.get<std::string>() : "";
    old_ = draft.find("/draft-0") != std::string::npos;
    id_ = draft.find("/draft-04") != std::string::npos || draft.find("/draft-03") != std::string::npos ? "id" : "$id";
  }

  void resolve() {
    resources_[""] = "";
    walk({root_, "", ""}, [&](const Place& place) { note(place); });
    walk({root_, "", ""}, [&](const Place& place) { rewrite(place); });
  }

 private:
  static const std::string* text(const JsonSchema& schema, const char* keyword) {
    const auto found = schema.find(keyword);
    return found != schema.end() && found->is_string() ? found->get_ptr<const std::string*>() : nullptr;
  }

  // Visits only places that hold a schema; values inside of const or enum are not schemas.
  void walk(Place place, FunctionRef<void(const Place&)> visit) {
    JsonSchema& schema = place.schema;
    if (!schema.is_object()) return;
    const std::string* id = old_ && schema.contains("$ref") ? nullptr : text(schema, id_);
    if (id != nullptr && !id->empty() && id->front() != '#') {
      place.base = absolute(place.base, *id);
      place.base.erase(std::min(place.base.find('#'), place.base.size()));
    }
    visit(place);
    const auto inside = [&](JsonSchema& one, const std::string& pointer) { walk({one, place.base, pointer}, visit); };
    for (const char* keyword : {"additionalProperties", "additionalItems", "items", "contains", "not", "if", "then",
                                "else", "propertyNames", "unevaluatedItems", "unevaluatedProperties"}) {
      const auto found = schema.find(keyword);
      if (found != schema.end()) inside(*found, place.pointer + "/" + keyword);
    }
    for (const char* keyword : {"allOf", "anyOf", "oneOf", "prefixItems", "items"}) {
      const auto found = schema.find(keyword);
      if (found == schema.end() || !found->is_array()) continue;
      for (size_t i = 0; i < found->size(); ++i)
        inside((*found)[i], place.pointer + "/" + keyword + "/" + std::to_string(i));
    }
    for (const char* keyword :
         {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}) {
      const auto found = schema.find(keyword);
      if (found == schema.end() || !found->is_object()) continue;
      for (auto& item : found->items()) inside(item.value(), place.pointer + "/" + keyword + pointer_part(item.key()));
    }
  }

  void note(const Place& place) {
    resources_.try_emplace(place.base, place.pointer);
    if (const std::string* id = text(place.schema, id_); id != nullptr && id->starts_with("#"))
      anchors_.try_emplace(place.base + *id, place.pointer);
    for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
      const std::string* name = text(place.schema, keyword);
      if (name == nullptr) continue;
      anchors_.try_emplace(place.base + "#" + *name, place.pointer);
      if (keyword[1] == 'd') ++dynamic_[*name];
    }
    const auto properties = place.schema.find("properties");
    if (properties != place.schema.end() && properties->is_object()) take_required(place.schema);
  }

  // "required": true of a property.
  static void take_required(JsonSchema& schema) {
    std::vector<std::string> needed;
    for (auto& item : schema["properties"].items()) {
      const auto required = item.value().is_object() ? item.value().find("required") : item.value().end();
      if (required == item.value().end() || !required->is_boolean()) continue;
      if (*required == true) needed.push_back(item.key());
      item.value().erase("required");
    }
    if (needed.empty()) return;
    JsonSchema& list = schema["required"];
    if (!list.is_array()) list = JsonSchema::array();
    for (const std::string& key : needed) {
      if (std::find(list.begin(), list.end(), key) == list.end()) list.push_back(key);
    }
  }

  void rewrite(const Place& place) {
    JsonSchema& schema = place.schema;
    for (const char* ours : {"$except", "$avoid", "$fraction", "$indivisible", "$contains"})
      schema.erase(ours);  // internal keywords have no meaning in a client's schema
    if (schema.contains("required") && schema["required"].is_boolean()) schema.erase("required");
    if (const std::string* reference = text(schema, "$ref")) {
      if (std::string found = find(place.base, *reference); !found.empty()) set_reference(schema, std::move(found));
      return;
    }
    // With a single anchor of the name, a dynamic reference equals a plain one.
    const std::string* dynamic = text(schema, "$dynamicRef");
    const size_t name = dynamic != nullptr ? dynamic->find('#') : std::string::npos;
    const bool single =
        name != std::string::npos && (dynamic->compare(name, 2, "#/") == 0 || dynamic_[dynamic->substr(name + 1)] <= 1);
    const bool recursive =
        text(schema, "$recursiveRef") != nullptr && *text(schema, "$recursiveRef") == "#" && resources_.size() <= 2;
    if (!single && !recursive) return;
    std::string found = find(place.base, single ? *dynamic : "#");
    if (found.empty()) return;
    schema.erase(single ? "$dynamicRef" : "$recursiveRef");
    set_reference(schema, std::move(found));
  }

  // A short reference can stand for a long pointer; bounds the memory of many.
  void set_reference(JsonSchema& schema, std::string pointer) {
    constexpr size_t kMostBytes = 4 << 20;
    written_ += pointer.size();
    if (written_ > kMostBytes) fail(ErrorKind::Usage, "the schema's references have names that are too long");
    schema["$ref"] = std::move(pointer);
  }

  // Empty: the reference is to another document.
  std::string find(const std::string& base, const std::string& reference) const {
    const std::string whole = absolute(base, reference);
    const size_t hash = std::min(whole.find('#'), whole.size());
    const std::string fragment = hash < whole.size() ? whole.substr(hash + 1) : "";
    const auto resource = resources_.find(whole.substr(0, hash));
    if (resource == resources_.end()) return "";
    if (fragment.empty() || fragment[0] == '/') return "#" + resource->second + fragment;
    const auto anchor = anchors_.find(whole.substr(0, hash) + "#" + fragment);
    return anchor == anchors_.end() ? "" : "#" + anchor->second;
  }

  JsonSchema& root_;
  bool old_ = false;  // drafts up to 7 ignore the keywords beside $ref
  const char* id_ = "$id";
  std::map<std::string, std::string> resources_, anchors_;  // to JSON pointers
  std::map<std::string, int> dynamic_;
  size_t written_ = 0;
};

}  // namespace

void resolve_references(JsonSchema& root) {
  if (root.is_object()) References(root).resolve();
}

}  // namespace millrace
