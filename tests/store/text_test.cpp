// Tests the store's parsers of names, index pages and settings.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/percent.h"
#include "store/catalogue.h"
#include "store/hub_files.h"
#include "store/pip_config.h"
#include "store/safe_path.h"
#include "store/sha256.h"
#include "store/simple_index.h"
#include "store/url.h"

namespace millrace {
namespace {

TEST(Sha256, KnownAnswersAndPieces) {
  EXPECT_EQ(Sha256().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 hash;
  hash.add("a");
  hash.hex();  // reading the digest must not finish the hash
  hash.add("bc");
  EXPECT_EQ(hash.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, ParsesOnlyWhatIsOne) {
  const std::string digest = Sha256().hex();
  EXPECT_EQ(parse_sha256('"' + digest + '"'), digest);
  EXPECT_EQ(parse_sha256("E3" + digest.substr(2)), digest);
  for (const std::string& other : {std::string(), digest.substr(1), digest + "0", "g" + digest.substr(1)}) {
    EXPECT_EQ(parse_sha256(other), "") << other;
  }
}

TEST(SafePath, StaysBelowItsFolder) {
  for (const char* good : {"a", "a/b.gguf", "Q4_K_M/x-00001-of-00002.gguf", "a b", "é"}) {
    EXPECT_TRUE(is_safe_relative_path(good)) << good;
  }
  for (const char* bad : {"", "/a", "a/", "a//b", "..", "a/..", "../a", "a/../b", ".", ".git", "a\\b", "c:x", "a\nb"}) {
    EXPECT_FALSE(is_safe_relative_path(bad)) << bad;
  }
  EXPECT_FALSE(is_safe_relative_path(std::string(300, 'x')));
}

TEST(Url, OriginIgnoresWhatIsNotTheHost) {
  EXPECT_EQ(url_origin("https://u:p@Example.org/a?b#c"), url_origin("https://Example.org:443/"));
  EXPECT_NE(url_origin("https://example.org"), url_origin("http://example.org"));
  EXPECT_NE(url_origin("http://example.org:80"), url_origin("http://example.org:81"));
  EXPECT_NE(url_origin("http://example.org"), url_origin("http://example.org.evil.net"));
  EXPECT_THROW(url_origin("file:///etc/passwd"), Error);
  EXPECT_THROW(url_origin(""), Error);
}

TEST(Url, SecretsAreNotPrinted) {
  EXPECT_EQ(printable_url("https://me:pass@host/path?signature=1#x"), "https://host/path");
  std::string secret;
  EXPECT_EQ(strip_userinfo("https://me:p%40ss@host/path", secret), "https://host/path");
  EXPECT_EQ(secret, "me:p@ss");
  strip_userinfo("https://host/path", secret);
  EXPECT_EQ(secret, "");
}

TEST(Url, JoinsAndEscapes) {
  EXPECT_EQ(join_url("https://h/simple/p/", "../../files/x.whl"), "https://h/files/x.whl");
  EXPECT_EQ(join_url("https://h/simple/p/", "https://other/x"), "https://other/x");
  EXPECT_EQ(escape_path("a b/c#d?.gguf"), "a%20b/c%23d%3F.gguf");
  EXPECT_EQ(percent_decode("a%20b%2"), "a b%2");
  EXPECT_EQ(percent_decode("%2F%2g%-1%%41"), "/%2g%-1%A");
}

TEST(HubId, Forms) {
  const auto id = parse_hub_id("Qwen/Qwen2.5-0.5B_x:dir/f.gguf");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->owner, "Qwen");
  EXPECT_EQ(id->name, "Qwen2.5-0.5B_x");
  EXPECT_EQ(id->choice, "dir/f.gguf");
  EXPECT_TRUE(id->names_file());
  EXPECT_FALSE(parse_hub_id("a/b:Q4_K_M")->names_file());
  for (const char* other : {"a", "a/b/c", "/a/b", "../b", "a/..", "a/b c", "a--b/c", "-a/b", "a/x.gguf", "", "/"}) {
    EXPECT_FALSE(parse_hub_id(other)) << other;
  }
  EXPECT_THROW(parse_hub_id("a/b:../../c.gguf"), Error);
  EXPECT_THROW(parse_hub_id("a/b:"), Error);
}

TEST(HubFiles, PartsOfASplit) {
  EXPECT_EQ(gguf_parts("a.gguf"), std::vector<std::string>{"a.gguf"});
  const std::vector<std::string> parts = {"d/a-00001-of-00002.gguf", "d/a-00002-of-00002.gguf"};
  EXPECT_EQ(gguf_parts(parts[1]), parts);
  EXPECT_EQ(gguf_parts("a-00001-of-00000.gguf"), std::vector<std::string>{"a-00001-of-00000.gguf"});
  EXPECT_EQ(gguf_parts("a-0000x-of-00002.gguf"), std::vector<std::string>{"a-0000x-of-00002.gguf"});
}

TEST(HubFiles, ATagIsAWordBeforeItIsAPiece) {
  const std::vector<std::string> listing = {"m-Q4_K.gguf", "m-Q4_K_M.gguf", "m.IQ4_XS.gguf", "imatrix.gguf", "x.bin"};
  EXPECT_EQ(choose_gguf(listing, {"o", "n", "q4_k"}), "m-Q4_K.gguf");
  EXPECT_EQ(choose_gguf(listing, {"o", "n", "Q4_XS"}), "m.IQ4_XS.gguf");
  EXPECT_THROW(choose_gguf(listing, {"o", "n", "Q4"}), Error);
  EXPECT_THROW(choose_gguf(std::vector<std::string>{"pytorch_model.bin"}, {"o", "n", ""}), Error);
}

TEST(HubFiles, WeightsAreThoseOfTheIndex) {
  const std::vector<std::string> listing = {"a.safetensors", "b.safetensors", "sub/c.safetensors"};
  EXPECT_EQ(folder_weights(listing, R"({"weight_map": {"x": "b.safetensors", "y": "b.safetensors"}})"),
            std::vector<std::string>{"b.safetensors"});
  EXPECT_EQ(folder_weights(listing, ""), (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
  for (const char* bad :
       {"{", "[]", R"({"weight_map": 1})", R"({"weight_map": {"x": 1}})", R"({"weight_map": {"x": "/etc/passwd"}})"}) {
    EXPECT_THROW(folder_weights(listing, bad), Error) << bad;
  }
}

TEST(SimpleIndex, HtmlOddities) {
  const std::string digest = Sha256().hex();
  const auto find = [](std::string_view page) { return find_in_html_index(page, "p-1.whl"); };
  EXPECT_EQ(find("<a title='>' href='../p-1.whl?x=1&amp;y=2#sha256=" + digest + "'>")->url, "../p-1.whl?x=1&y=2");
  EXPECT_EQ(find("<a href='p-1.whl#sha256=" + digest + "'>")->sha256, digest);
  EXPECT_EQ(find("<a href='p-1.whl#md5=abc'>")->sha256, "");
  EXPECT_EQ(find("<p>it's</p><a href=x/P%2d1.whl rel=internal>")->url, "x/P%2d1.whl");
  for (const char* none : {"", "<", "<a", "<a ", "<a href", "<a href=", "<a href='", "<a =", "<abbr href='p-1.whl'>",
                           "<a href='p-1.whl.metadata'>", "p-1.whl"}) {
    EXPECT_FALSE(find(none)) << none;
  }
}

TEST(PipConfig, ReadsWhatPipReads) {
  const auto values = parse_pip_config(
      "index-url = no\n[global]\n# comment\nindex_url = https://m/simple\r\nCERT: /a=b\nextra =\n  continued\n"
      "[install]\ncert = no\n");
  EXPECT_EQ(values.at("index-url"), "https://m/simple");
  EXPECT_EQ(values.at("cert"), "/a=b");
  EXPECT_EQ(values.at("extra"), "continued");
  EXPECT_EQ(parse_pip_config(" orphan\n[global]\n no key\n=\n").count("orphan"), 0u);
}

TEST(Catalogue, EveryEntryCanBeFetched) {
  std::set<std::string_view> names;
  for (const CatalogueEntry& entry : catalogue()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is there twice";
    EXPECT_EQ(find_in_catalogue(entry.name), &entry);
    for (int part = 1; part <= entry.parts; ++part) {
      EXPECT_TRUE(is_safe_relative_path(of_part(entry.file, part))) << entry.name;
      EXPECT_TRUE(is_safe_relative_path(of_part(entry.from, part))) << entry.name;
    }
    EXPECT_FALSE(entry.licence.empty()) << entry.name;
    if (entry.source == CatalogueEntry::Source::Hub) {
      EXPECT_TRUE(parse_hub_id(std::string(entry.from) + ":" + std::string(entry.file))) << entry.name;
    } else {
      EXPECT_EQ(parse_sha256(entry.sha256), entry.sha256) << entry.name;
      EXPECT_EQ(entry.parts > 1, !entry.saved_as.empty()) << entry.name;
      if (entry.parts == 1) continue;
      const uint64_t before_last = entry.part_bytes * static_cast<uint64_t>(entry.parts - 1);
      EXPECT_GT(entry.bytes, before_last) << entry.name;
      EXPECT_LE(entry.bytes, before_last + entry.part_bytes) << entry.name;
    }
  }
  EXPECT_EQ(of_part("m_part{part}/x{part:02}.{index}", 3), "m_part3/x03.2");
  EXPECT_EQ(find_in_catalogue("default")->name, "smollm2-135m-instruct");
  EXPECT_EQ(find_in_catalogue("Gemma3-270M")->name, "gemma-3-270m");
  EXPECT_EQ(find_in_catalogue("no such"), nullptr);
}

}  // namespace
}  // namespace millrace
