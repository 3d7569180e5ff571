#include "server/requests/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/ascii.h"
#include "server/requests/api_error.h"
#include "server/requests/chat_request.h"
#include "server/requests/completions_request.h"
#include "server/requests/custom_tools.h"
#include "server/requests/responses_request.h"
#include "server/routes.h"

namespace millrace {
namespace {

struct Refused {
  std::string param, code;
  bool operator==(const Refused&) const = default;
};
void PrintTo(const Refused& r, std::ostream* out) { *out << r.param << " / " << r.code; }

template <class F>
Refused refusal(F&& f) {
  try {
    f();
  } catch (const ApiError& e) {
    EXPECT_EQ(e.problem().status, 400);
    EXPECT_FALSE(e.problem().message.empty());
    return {e.problem().param, e.problem().code};
  }
  return {"accepted", ""};
}

Refused chat(const std::string& fields) {
  const std::string body =
      R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
  return refusal([&] { chat_fields().read(parse_json(body)); });
}

const Refused kFine{"accepted", ""};

TEST(Json, IsBounded) {
  EXPECT_EQ(parse_json(R"({"a":[1,2.5,"x",null,true]})")["a"].size(), 5u);
  EXPECT_THROW(parse_json(std::string(200, '[') + std::string(200, ']')), ApiError);
  EXPECT_THROW(parse_json(std::string(5000000, '[')), ApiError);
  EXPECT_THROW(parse_json("{\"a\":1"), ApiError);
  EXPECT_THROW(parse_json("\"\xff\xfe\""), ApiError);      // not UTF-8
  EXPECT_THROW(parse_json("\"\xed\xa0\x80\""), ApiError);  // half a surrogate pair
  EXPECT_THROW(parse_json(""), ApiError);
  EXPECT_THROW(parse_json("1e999"), ApiError);
  std::string wide = "{\"x\":0";
  for (int i = 0; i < 3000; ++i) wide += ",\"k" + std::to_string(i) + "\":0";
  EXPECT_THROW(parse_json(wide + "}"), ApiError);
}

TEST(Schema, NamesThePlace) {
  EXPECT_EQ(chat(""), kFine);
  EXPECT_EQ(chat(R"("temperature":0.5)"), kFine);
  EXPECT_EQ(chat(R"("temperature":null)"), kFine);
  EXPECT_EQ(chat(R"("temperature":2.5)"), (Refused{"temperature", "decimal_above_max_value"}));
  EXPECT_EQ(chat(R"("temperature":"hot")"), (Refused{"temperature", "invalid_type"}));
  EXPECT_EQ(chat(R"("n":0)"), (Refused{"n", "integer_below_min_value"}));
  EXPECT_EQ(chat(R"("n":1.5)"), (Refused{"n", "invalid_type"}));
  EXPECT_EQ(chat(R"("n":2.0)"), kFine);
  EXPECT_EQ(chat(R"("seed":-9223372036854775808)"), kFine);
  EXPECT_EQ(chat(R"("seed":9223372036854775808)"), (Refused{"seed", "integer_above_max_value"}));
  EXPECT_EQ(chat(R"("stop":"x")"), kFine);
  EXPECT_EQ(chat(R"("stop":["x",""])"), (Refused{"stop[1]", "invalid_value"}));
  EXPECT_EQ(chat(R"("tempature":1)"), (Refused{"tempature", "unknown_parameter"}));
  EXPECT_EQ(chat(R"("stream_options":{"include_usage":true,"x":1})"),
            (Refused{"stream_options.x", "unknown_parameter"}));
  EXPECT_EQ(chat(R"("logit_bias":{"5":101})"), (Refused{"logit_bias.5", "decimal_above_max_value"}));
  EXPECT_EQ(chat(R"("tool_choice":"maybe")"), (Refused{"tool_choice", "invalid_value"}));
  EXPECT_EQ(chat(R"("response_format":{"type":"json_schema","json_schema":{"name":""}})"),
            (Refused{"response_format.json_schema.name", "invalid_value"}));
}

TEST(Schema, Messages) {
  const auto with = [](const std::string& message) {
    return refusal([&] { chat_fields().read(parse_json("{\"messages\":[" + message + "]}")); });
  };
  EXPECT_EQ(with(""), (Refused{"messages", "invalid_value"}));
  EXPECT_EQ(refusal([] { chat_fields().read(parse_json("{}")); }), (Refused{"messages", "missing_required_parameter"}));
  EXPECT_EQ(refusal([] { chat_fields().read(parse_json("[]")); }), (Refused{"", "invalid_type"}));
  EXPECT_EQ(with(R"({"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]})"), kFine);
  EXPECT_EQ(
      with(R"({"role":"assistant","content":null,"refusal":null,"annotations":[],"audio":null,"function_call":null,
                     "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]})"),
      kFine);
  EXPECT_EQ(with(R"({"role":"user"})"), (Refused{"messages[0].content", "missing_required_parameter"}));
  EXPECT_EQ(with(R"({"role":"wizard","content":"x"})").param, "messages[0].role");
  EXPECT_NE(with(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]})"), kFine);
  EXPECT_EQ(with(R"({"role":"user","content":"x","a":1})"), (Refused{"messages[0].a", "unknown_parameter"}));
  EXPECT_EQ(with(R"({"role":"tool","content":"x"})"),
            (Refused{"messages[0].tool_call_id", "missing_required_parameter"}));
}

TEST(Schema, NamesEveryWordThatWouldDo) {
  const auto message = [](const std::string& body) {
    try {
      chat_fields().read(parse_json(body));
    } catch (const ApiError& e) {
      return e.problem().message;
    }
    return std::string("accepted");
  };
  const std::string start = R"({"messages":[{"role":"user","content":"hi"}],"response_format":)";
  EXPECT_EQ(message(R"({"messages":[{"role":"wizard","content":"x"}]})"),
            "'messages[0].role' must be one of: system, developer, user, assistant, tool, function");
  EXPECT_EQ(
      message(start + R"({"type":"xml"}})"),
      "'response_format.type' must be one of: text, json_object, json_schema, regex, grammar; 'xml' is not supported");
  EXPECT_EQ(message(start + "{}}"), "'response_format.type' is required");
  EXPECT_EQ(message(start + "3}"), "'response_format' must be of type object or null, but is of type number");
}

TEST(Schema, NamesWhatIsWrongWithTheClosestForm) {
  const auto message = [](const Schema& schema, const std::string& value) {
    try {
      schema.check(parse_json(value), "it");
    } catch (const ApiError& e) {
      return e.problem().message;
    }
    return std::string("accepted");
  };
  const auto prompt = [&](const std::string& value) { return message(prompts_schema(), value); };
  EXPECT_EQ(prompt(R"([1,2,"a"])"), "'it[2]' must be of type integer, but is of type string");
  EXPECT_EQ(prompt(R"([[1,2],"a"])"), "'it[1]' must be of type array, but is of type string");
  EXPECT_EQ(prompt("[]"), "'it' must have at least 1 item");
  std::string many = "[";
  for (int i = 0; i < 3000; ++i) many += "\"a\",";
  EXPECT_THAT(prompt(many + "\"a\"]"), testing::ContainsRegex("'it' must have at most [0-9]+ items"));

  const auto input = [&](const std::string& item) {
    try {
      responses_fields().read(parse_json("{\"input\":[" + item + "]}"));
    } catch (const ApiError& e) {
      return e.problem().message;
    }
    return std::string("accepted");
  };
  EXPECT_EQ(input(R"({"type":"message"})"), "'input[0].role' is required");
  EXPECT_EQ(input(R"({"type":"message","role":"wizard","content":"x"})"),
            "'input[0].role' must be one of: system, developer, user, assistant");
  EXPECT_EQ(input(R"({"type":"message","role":"user"})"), "'input[0].content' is required");
  EXPECT_EQ(input(R"({"type":"function_call"})"), "'input[0].call_id' is required");
  EXPECT_THAT(input(R"({"type":"item_reference","id":"m"})"), testing::HasSubstr("function_call_output"));
  EXPECT_THAT(input(R"({"type":"item_reference","id":"m"})"), testing::HasSubstr("'item_reference' is not supported"));
  EXPECT_EQ(input("{}"), "'input[0].role' is required");
}

TEST(Schema, TemplatesSeePlainMessages) {
  const Json messages = parse_json(R"([
    {"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
                                      {"id":"2","type":"function","function":{"name":"g","arguments":"{oops"}}]},
    {"role":"tool","tool_call_id":"1","content":"done"}])");
  const Json seen = template_messages(messages);
  EXPECT_EQ(seen[0], parse_json(R"({"role":"system","content":"ab"})"));
  EXPECT_EQ(seen[1]["tool_calls"][0]["function"]["arguments"], parse_json(R"({"x":1})"));
  EXPECT_EQ(seen[1]["tool_calls"][1]["function"]["arguments"], "{oops");
  EXPECT_EQ(seen[2]["tool_call_id"], "1");
}

TEST(Schema, CustomToolsAreFunctionsOfOneText) {
  const auto r = responses_fields().read(parse_json(R"({"input":[
    {"type":"custom_tool_call","call_id":"c","name":"py","input":"1\n"},
    {"type":"custom_tool_call_output","call_id":"c","output":"2"}],
    "tools":[{"type":"custom","name":"py","format":{"type":"grammar","syntax":"regex","definition":"a|b"}}],
    "tool_choice":{"type":"custom","name":"py"}})"));
  const ChatRequest chat = to_chat_request(r);
  const Json& function = chat.tools[0]["function"];
  EXPECT_EQ(function["parameters"]["properties"]["input"]["pattern"], "^(?:a|b)$");
  EXPECT_EQ(function["strict"], true);
  EXPECT_EQ(chat.custom_tools, std::vector<std::string>{"py"});
  EXPECT_EQ(chat.tool_choice["function"]["name"], "py");
  EXPECT_EQ(template_messages(chat.messages)[0]["tool_calls"][0]["function"]["arguments"]["input"], "1\n");
  EXPECT_EQ(custom_input(custom_arguments("a\"b\n")), "a\"b\n");
  EXPECT_EQ(custom_input(R"({"input": "cut)"), "cut");
  EXPECT_EQ(custom_input(R"({"input": "cut\)"), "cut");
  EXPECT_EQ(custom_input(R"({"input": "cut\u00)"), "cut");
  EXPECT_EQ(custom_input(R"({"inp)"), "");
  const Json lark = parse_json(R"({"input":"x","tools":[{"type":"custom","name":"p","format":
    {"type":"grammar","syntax":"lark","definition":"start: \"a\""}}]})");
  EXPECT_THROW(to_chat_request(responses_fields().read(lark)), ApiError);
}

TEST(Schema, Prompts) {
  EXPECT_EQ(read_prompts(parse_json(R"("a")")).size(), 1u);
  EXPECT_EQ(read_prompts(parse_json(R"(["a","b"])")).size(), 2u);
  EXPECT_EQ(read_prompts(parse_json("[1,2,3]"))[0].tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(read_prompts(parse_json("[[1,2],[3]]"))[1].tokens, (std::vector<int32_t>{3}));
  for (const char* bad : {"[]", "[[]]", "{}", "[1,\"a\"]", "[-1]", "[1.5]", "[99999999999]", "null", "[[1],\"a\"]"}) {
    EXPECT_THROW(prompts_schema().check(parse_json(bad), "prompt"), ApiError) << bad;
  }
}

TEST(Schema, ResponsesBecomeChats) {
  const auto r = responses_fields().read(parse_json(R"({"instructions":"Be brief.","max_output_tokens":7,"input":[
    {"role":"user","content":[{"type":"input_text","text":"hi"}]},
    {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
    {"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
    {"type":"function_call_output","call_id":"c1","output":"1"}],
    "tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"tool_choice":{"type":"function","name":"f"},
    "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}})"));
  const ChatRequest chat = to_chat_request(r);
  ASSERT_EQ(chat.messages.size(), 4u);
  EXPECT_EQ(chat.messages[0]["role"], "system");
  EXPECT_EQ(chat.messages[2]["tool_calls"].size(), 2u);
  EXPECT_EQ(chat.max_completion_tokens, 7);
  EXPECT_EQ(chat.tools[0]["function"]["name"], "f");
  EXPECT_EQ(chat.tool_choice["function"]["name"], "f");
  EXPECT_EQ(chat.response_format["json_schema"]["name"], "n");
  // The translation is a valid chat request.
  const Json body{{"messages", chat.messages}, {"tools", chat.tools}, {"response_format", chat.response_format}};
  EXPECT_NO_THROW(chat_fields().read(body));
  EXPECT_NE(refusal([] { responses_fields().read(parse_json(R"({"input":"x","previous_response_id":""})")); }), kFine);
  EXPECT_NE(refusal([] { responses_fields().read(parse_json(R"({"input":"x","background":1})")); }), kFine);
}

TEST(OpenApi, HasEveryRouteAndField) {
  const Json document = openapi_document(true);
  for (const Route& route : routes()) {
    const std::string method = ascii_lower(route.method);
    ASSERT_TRUE(document["paths"].contains(route.path)) << route.path;
    const Json& operation = document["paths"][route.path][method];
    EXPECT_EQ(operation.contains("security"), !route.open) << route.path;
    EXPECT_EQ(operation.contains("requestBody"), route.request.has_value()) << route.path;
  }
  const Json& chat =
      document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"];
  for (const char* name :
       {"messages", "temperature", "tools", "response_format", "stream_options", "logit_bias", "ignore_eos"}) {
    EXPECT_TRUE(chat["properties"].contains(name)) << name;
  }
  EXPECT_EQ(chat["additionalProperties"], false);
  EXPECT_EQ(chat["required"], Json::array({"messages"}));
  EXPECT_FALSE(openapi_document(false)["components"].contains("securitySchemes"));
}

}  // namespace
}  // namespace millrace
