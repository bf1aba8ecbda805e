#include "windrow/training/record.h"

#include "tests/training/files.h"

namespace windrow::testing {
namespace {

Record parse(const std::string& json) { return Record::parse(json, "f.json: manifest"); }
Record again(const Record& record) { return parse(record.json()); }

std::string refusal(const std::string& json) {
  return error_of([&] { parse(json); });
}

TEST(Record, IsReadBackAsItWasWritten) {
  Record inner;
  inner.set("empty list", RecordValue::List{}).set("empty record", Record());
  Record record;
  record.set("text", "a \"quoted\" text\nof two lines, ü, \x01")
      .set("", "a value without a name")
      .set("most", std::numeric_limits<std::uint64_t>::max())
      .set("least", std::numeric_limits<std::int64_t>::min())
      .set("rate", 1e-3)
      .set("zero", 0)
      .set("sizes", RecordValue::List{2, "x", 0.5, inner, RecordValue::List{1}})
      .set("inner", inner);
  EXPECT_EQ(again(record), record);
  EXPECT_EQ(parse(record.json(JsonStyle::compact)), record);
  EXPECT_EQ(again(record).json(), record.json());

  const Record read = again(record);
  EXPECT_EQ(read.at("text").text(), "a \"quoted\" text\nof two lines, ü, \x01");
  EXPECT_EQ(read.at("most").count(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(read.at("least").integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read.at("rate").number(), 1e-3);
  EXPECT_EQ(read.at("sizes").list().at(0).integer(), 2);
  EXPECT_TRUE(read.at("inner").record().at("empty record").record().values().empty());
  EXPECT_FALSE(read.contains("outer"));
}

TEST(Record, IsIndentedForPeople) {
  Record record;
  record.set("b", RecordValue::List{1, 2.0}).set("a", Record().set("x", -1)).set("c", Record());
  EXPECT_EQ(record.json(), "{\n  \"a\": {\n    \"x\": -1\n  },\n  \"b\": [1, 2.0],\n  \"c\": {}\n}\n");
  EXPECT_EQ(record.json(JsonStyle::compact), R"({"a": {"x": -1},"b": [1, 2.0],"c": {}})");
}

TEST(Record, KeepsAllBitsOfNumbers) {
  std::mt19937_64 random(first_seed());
  std::vector<double> numbers = {0.0, -0.0, 1, 1e22, 1e23, 5e-324, 0.1, 1e16, -123456789};
  numbers.push_back(std::numeric_limits<double>::max());
  numbers.push_back(std::numeric_limits<double>::min());
  while (numbers.size() < 1000) {
    const double number = std::bit_cast<double>(random());
    if (std::isfinite(number)) numbers.push_back(number);
  }
  for (const double number : numbers) {
    const double read = again(Record().set("x", number)).at("x").number();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(read), std::bit_cast<std::uint64_t>(number)) << number;
  }
}

TEST(Record, WritesNumbersThatAreNotFiniteAsTexts) {
  Record record;
  record.set("nan", std::nan("")).set("most", HUGE_VAL).set("least", -HUGE_VAL);
  EXPECT_EQ(record.json(JsonStyle::compact), R"({"least": "-Infinity","most": "Infinity","nan": "NaN"})");
  EXPECT_TRUE(std::isnan(again(record).at("nan").number()));
  EXPECT_EQ(again(record).at("most").number(), HUGE_VAL);
  EXPECT_EQ(again(record).at("least").number(), -HUGE_VAL);
}

TEST(Record, TellsIntegersFromNumbers) {
  const Record record = again(Record().set("integer", 1).set("number", 1.0).set("negative", -1));
  EXPECT_EQ(record.at("integer").integer(), 1);
  EXPECT_EQ(record.at("integer").count(), 1u);
  EXPECT_EQ(error_of([&] { record.at("integer").number(); }),
            "f.json: manifest.integer is an integer; expected a number with a fraction, such as 1.0");
  EXPECT_EQ(error_of([&] { record.at("number").integer(); }),
            "f.json: manifest.number is a number; expected an integer");
  EXPECT_EQ(error_of([&] { record.at("negative").count(); }),
            "f.json: manifest.negative is a negative integer; expected an integer that is not negative");
  const Record large = again(Record().set("x", std::uint64_t{1} << 63));
  EXPECT_EQ(error_of([&] { large.at("x").integer(); }),
            "f.json: manifest.x is 9223372036854775808; expected an integer below 2^63");
  EXPECT_EQ(again(Record().set("x", 5)), Record().set("x", std::uint64_t{5}));
}

TEST(Record, NamesThePlaceOfAWrongType) {
  const Record record = parse(R"({"optimiser": {"sizes": [1, {"x": "y"}]}})");
  const Record& optimiser = record.at("optimiser").record();
  EXPECT_EQ(error_of([&] { optimiser.at("rate"); }), "f.json: manifest.optimiser has no 'rate'; expected one");
  EXPECT_EQ(error_of([&] { optimiser.at("sizes").text(); }),
            "f.json: manifest.optimiser.sizes is a list; expected a text");
  EXPECT_EQ(error_of([&] { optimiser.at("sizes").list()[0].record(); }),
            "f.json: manifest.optimiser.sizes[0] is an integer; expected a record");
  EXPECT_EQ(error_of([&] { optimiser.at("sizes").list()[1].record().at("x").list(); }),
            "f.json: manifest.optimiser.sizes[1].x is a text; expected a list");
  EXPECT_EQ(error_of([] { Record().at("x"); }), "record has no 'x'; expected one");
}

TEST(Record, RefusesWhatIsNoRecord) {
  EXPECT_EQ(refusal(R"({"a": {"b": 1, "b": 1}})"), "f.json: manifest.a has 'b' twice; expected each name once");
  EXPECT_EQ(refusal(R"({"a": [{"x": 0, "y": 0, "x": 0}]})"),
            "f.json: manifest.a[0] has 'x' twice; expected each name once");
  EXPECT_EQ(refusal(R"({"a": null})"), "f.json: manifest.a is null; expected a text, a number, a list or a record");
  EXPECT_EQ(refusal(R"({"a": [1, true]})"),
            "f.json: manifest.a[1] is true; expected a text, a number, a list or a record");
  EXPECT_EQ(refusal("[1]"), "f.json: manifest is a list; expected a record");
  EXPECT_EQ(refusal("1"), "f.json: manifest is an integer; expected a record");
  for (const char* json : {"", " ", "{", "{\"a\": 1,}", "{} {}", "{\"a\": 1e999}", "{\"a\": NaN}", "{a: 1}",
                           "{\"a\": 01}", "{\"a\": \"\xff\"}", "// x\n{}", "{\"a\n\": 1}"}) {
    EXPECT_NE(refusal(json).find("f.json: manifest is not valid at byte "), std::string::npos) << json;
  }
  EXPECT_NE(refusal(std::string("{}\0", 3)).find("not valid"), std::string::npos);
}

TEST(Record, EscapesAndShortensNamesInErrors) {
  EXPECT_EQ(refusal(R"({"a\nb": null})"),
            "f.json: manifest.a\\x0ab is null; expected a text, a number, a list or a record");
  const std::string error = refusal("{\"" + std::string(100'000, 'x') + "\": null}");
  EXPECT_LT(error.size(), 200u);
}

TEST(Record, IsAtMost64LevelsDeep) {
  const auto nested = [](int levels) {
    return "{\"a\": " + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_NO_THROW(parse(nested(64)));
  EXPECT_EQ(refusal(nested(65)), "f.json: manifest has more than 64 levels; expected at most 64");
  EXPECT_EQ(refusal(std::string(1'000'000, '[')), "f.json: manifest has more than 64 levels; expected at most 64");
}

TEST(Record, HasAtMostAMillionValues) {
  std::string sevens = "7";
  while (sevens.size() < 2 * 999'998) sevens += ",7";
  EXPECT_EQ(refusal("{\"x\": [7," + sevens + "]}"),
            "f.json: manifest has more than a million values; expected at most a million");
  EXPECT_THROW(Record().set("x", RecordValue::List(1'000'000, RecordValue(7))).json(), MisuseError);
}

TEST(Record, WritesUtf8Only) {
  EXPECT_THROW(Record().set("x", "\xff").json(), MisuseError);
  EXPECT_THROW(Record().set("\xff", 1).json(), MisuseError);
}

TEST(Record, WritesAtMost64Levels) {
  RecordValue value = 0;
  for (int level = 1; level < 64; ++level) value = RecordValue::List{value};
  EXPECT_EQ(again(Record().set("x", value)), Record().set("x", value));
  EXPECT_THROW(Record().set("x", RecordValue::List{value}).json(), MisuseError);
}

TEST(Record, RefusesOtherFormatsAndNewerVersions) {
  const RecordFormat format{.name = "trainer", .newest_version = 2};
  EXPECT_EQ(again(Record().set_format(format)).require_format(format), 2u);
  EXPECT_EQ(parse(R"({"format": "trainer", "version": 1})").require_format(format), 1u);
  const auto refused = [&](const std::string& json) { return error_of([&] { parse(json).require_format(format); }); };
  EXPECT_EQ(refused("{}"), "f.json: manifest has no 'format'; expected one");
  EXPECT_EQ(refused(R"({"format": "x", "version": 1})"), "f.json: manifest has format 'x'; expected 'trainer'");
  EXPECT_EQ(refused(R"({"format": "trainer", "version": 7})"),
            "f.json: manifest has format version 7; this program reads up to 2; expected a file of this version, or a "
            "newer program");
  EXPECT_EQ(refused(R"({"format": "trainer", "version": 0})"),
            "f.json: manifest has format version 0; expected 1 or more");
  EXPECT_EQ(refused(R"({"format": "trainer", "version": "1"})"),
            "f.json: manifest.version is a text; expected an integer that is not negative");
}

}  // namespace
}  // namespace windrow::testing
