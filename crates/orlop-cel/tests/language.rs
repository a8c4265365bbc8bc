//! The language itself: operators, literals, macros, conversions. One row per behaviour.

mod table;

use table::{all_fail, all_true, everything};

#[test]
fn literals_evaluate() {
    all_true(
        &everything(),
        &[
            "1 == 0x1",
            "-1 == 0 - 1",
            "-9223372036854775808 < 0",
            "9223372036854775807 > 0",
            "0xFFu == 255u",
            "18446744073709551615u > 0u",
            "1.5 == 15.0 / 10.0",
            ".5 == 0.5",
            "1e3 == 1000.0",
            "1.5E-1 == 0.15",
            "'a' == \"a\"",
            "'''a'b''' == \"a'b\"",
            "\"\"\"a\"b\"\"\" == 'a\"b'",
            r"r'\n' == '\\n'",
            r"R'\d' == '\\d'",
            r"'\x41' == 'A'",
            r"'\u00e9' == 'é'",
            r"'\U0001F600' == '😀'",
            r"'\101' == 'A'",
            r"'\a\b\f\n\r\t\v\\\'\?\`'.size() == 11",
            r"b'\xff\x00' == b'\377\000'",
            "b'é' == b'\\xc3\\xa9'",
            "br'\\x' == b'\\\\x'",
            "'''a\r\nb''' == 'a\\nb'",
            "null == null",
            "true && !false",
            "[1, 2,] == [1, 2]",
            "{'a': 1,} == {'a': 1}",
            "1 == 1 // a comment",
            "1 + // the sum\n 1 == 2",
        ],
    );
}

#[test]
fn arithmetic_is_exact_or_an_error() {
    let env = everything();
    all_true(
        &env,
        &[
            "1 + 2 == 3",
            "1u + 2u == 3u",
            "1.5 + 1.5 == 3.0",
            "5 - 7 == -2",
            "5u - 3u == 2u",
            "2 * 3 == 6",
            "7 / 2 == 3",
            "-7 / 2 == -3",
            "7 % 3 == 1",
            "-7 % 3 == -1",
            "7u / 2u == 3u",
            "7u % 4u == 3u",
            "7.0 / 2.0 == 3.5",
            "1.0 / 0.0 > 1e308",
            "-(5) == -5",
            "--5 == 5",
            "-1.5 == 0.0 - 1.5",
            "1 + 2 * 3 == 7",
            "(1 + 2) * 3 == 9",
            "10 - 2 - 3 == 5",
            "100 / 10 / 5 == 2",
            "9223372036854775807 + 0 == 9223372036854775807",
            "'a' + 'b' == 'ab'",
            "b'a' + b'b' == b'ab'",
            "[1] + [2] == [1, 2]",
            "duration('1m') + duration('1s') == duration('61s')",
            "timestamp('2020-01-01T00:00:00Z') + duration('1h') == timestamp('2020-01-01T01:00:00Z')",
            "duration('1h') + timestamp('2020-01-01T00:00:00Z') == timestamp('2020-01-01T01:00:00Z')",
            "timestamp('2020-01-01T01:00:00Z') - duration('1h') == timestamp('2020-01-01T00:00:00Z')",
            "timestamp('2020-01-01T01:00:00Z') - timestamp('2020-01-01T00:00:00Z') == duration('1h')",
            "duration('1h') - duration('1m') == duration('59m')",
        ],
    );
    all_fail(
        &env,
        &[
            ("9223372036854775807 + 1", "integer overflow"),
            ("-9223372036854775808 - 1", "integer overflow"),
            ("9223372036854775807 * 2", "integer overflow"),
            ("-(-9223372036854775808)", "integer overflow"),
            ("-9223372036854775808 / -1", "integer overflow"),
            ("-9223372036854775808 % -1", "integer overflow"),
            ("18446744073709551615u + 1u", "unsigned integer overflow"),
            ("1u - 2u", "unsigned integer overflow"),
            ("18446744073709551615u * 2u", "unsigned integer overflow"),
            ("1 / 0", "division by zero"),
            ("1u / 0u", "division by zero"),
            ("1 % 0", "modulus by zero"),
            ("1u % 0u", "modulus by zero"),
            ("duration('2562047h') + duration('2562047h')", "duration overflow"),
            ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
            ("timestamp('0001-01-01T00:00:00Z') - duration('1s')", "timestamp overflow"),
            ("timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')", "integer overflow"),
            ("dyn(1) + dyn('a')", "no such overload"),
            ("dyn('a') * dyn(2)", "no such overload"),
            ("-dyn('a')", "no such overload"),
            ("!dyn(1)", "no such overload"),
        ],
    );
}

#[test]
fn comparison_and_equality() {
    let env = everything();
    all_true(
        &env,
        &[
            "1 < 2 && 1 <= 1 && 2 > 1 && 2 >= 2",
            "1u < 2u",
            "1.0 < 1.5",
            "1 < 2u && 1u < 2 && 1 < 1.5 && 1.5 < 2 && 1u < 1.5 && 1.5 < 2u",
            "-1 < 0u",
            "9223372036854775807 < 9223372036854775808u",
            "!(dyn(9007199254740993) > 9007199254740992.0)",
            "dyn(9007199254740993) == 9007199254740992.0",
            "'a' < 'b' && 'a' < 'aa' && 'B' < 'a'",
            "'é' > 'z'",
            "b'a' < b'b'",
            "false < true",
            "duration('1s') < duration('1m')",
            "timestamp('2020-01-01T00:00:00Z') < timestamp('2021-01-01T00:00:00Z')",
            "dyn(1) == 1u && dyn(1) == 1.0 && dyn(1u) == 1.0",
            "dyn(1) != 'a'",
            "dyn(null) != 0",
            "!(double('NaN') == double('NaN'))",
            "double('NaN') != double('NaN')",
            "[1, 2] == [1, 2] && [1, 2] != [2, 1] && [1] != [1, 1]",
            "[[1]] == [[1]]",
            "{'a': 1, 'b': 2} == {'b': 2, 'a': 1}",
            "{'a': 1} != {'a': 2} && {'a': 1} != {'b': 1} && {'a': 1} != {'a': 1, 'b': 2}",
            "dyn({1: 'a'}) == {1u: 'a'}",
            "dyn([1]) == [1.0]",
            "type(1) == int && type(1u) == uint && type(1.0) == double && type('') == string",
            "type(b'') == bytes && type([]) == list && type({}) == map && type(null) == null_type",
            "type(true) == bool && type(int) == type && type(type) == type",
            "type(timestamp(0)) == google.protobuf.Timestamp",
            "type(duration('1s')) == google.protobuf.Duration",
            "type(optional.none()) == optional_type",
            "type(1) != type('a')",
            "timestamp('2020-01-01T01:00:00+01:00') == timestamp('2020-01-01T00:00:00Z')",
        ],
    );
    all_fail(
        &env,
        &[
            ("double('NaN') < 1.0", "NaN values cannot be ordered"),
            ("1 > dyn(double('NaN'))", "NaN values cannot be ordered"),
            ("dyn('a') < dyn(1)", "no such overload"),
            ("dyn([1]) < dyn([2])", "no such overload"),
        ],
    );
}

#[test]
fn logic_absorbs_errors_where_one_side_decides() {
    let env = everything();
    all_true(
        &env,
        &[
            "true || false",
            "!(true && false)",
            "true || 1 / 0 > 0",
            "1 / 0 > 0 || true",
            "!(false && 1 / 0 > 0)",
            "!(1 / 0 > 0 && false)",
            "1 / 0 > 0 || false || true",
            "true ? true : 1 / 0 > 0",
            "false ? 1 / 0 > 0 : true",
            "(false ? 1 : 2) == 2",
            "true ? (false ? false : true) : false",
            "false ? true : false ? false : true",
            "!!true",
            "!(!true)",
            "dyn(1) == 1 || dyn('a') > 1",
        ],
    );
    all_fail(
        &env,
        &[
            ("1 / 0 > 0 || false", "division by zero"),
            ("1 / 0 > 0 && true", "division by zero"),
            ("true && 1 / 0 > 0", "division by zero"),
            ("1 / 0 > 0 || 1 % 0 > 0", "division by zero"),
            ("1 / 0 > 0 ? true : false", "division by zero"),
            ("dyn(1) && true", "no such overload"),
            ("dyn(1) ? true : false", "no such overload"),
        ],
    );
}

#[test]
fn membership_index_and_select() {
    let env = everything();
    all_true(
        &env,
        &[
            "1 in [1, 2]",
            "!(3 in [1, 2])",
            "dyn(1u) in [1, 2]",
            "dyn(1.0) in dyn([1, 2])",
            "'a' in {'a': 1}",
            "!('b' in {'a': 1})",
            "dyn(1u) in {1: 'a'}",
            "dyn(1.0) in {1: 'a'}",
            "!(dyn([1]) in {1: 'a'})",
            "x in [1] || true",
            "[1, 2][1] == 2",
            "dyn([1, 2])[1u] == 2",
            "dyn([1, 2])[1.0] == 2",
            "{'a': 1}['a'] == 1",
            "{'a': 1}.a == 1",
            "{1: 'a'}[1] == 'a'",
            "dyn({1: 'a'})[1u] == 'a'",
            "dyn({1: 'a'})[1.0] == 'a'",
            "{true: 'a'}[true] == 'a'",
            "{'a': {'b': [1]}}.a.b[0] == 1",
            "has({'a': 1}.a) && !has({'a': 1}.b)",
            "has({'a': null}.a)",
            "!has(dyn(1).a)",
            "{'a': 1}.size() == 1 && size({'a': 1}) == 1",
            "[1].size() == 1 && size([1]) == 1",
            "'é😀'.size() == 2 && size('é😀') == 2",
            "b'\\xff'.size() == 1 && size(b'é') == 2",
        ],
    );
    all_fail(
        &env,
        &[
            ("[1][1]", "index out of bounds: 1"),
            ("[1][-1]", "index out of bounds: -1"),
            ("dyn([1])['a']", "unsupported index type 'string' in list"),
            ("dyn([1])[0.5]", "unsupported index value 0.5 in list"),
            ("{'a': 1}['b']", "no such key: b"),
            ("{'a': 1}.b", "no such key: b"),
            ("{1: 'a'}[2]", "no such key: 2"),
            ("dyn({'a': 1}).b.c", "no such key: b"),
            ("has(dyn({}).a.b)", "no such key: a"),
            ("dyn(1)[0]", "no such overload"),
            ("1 in dyn(1)", "no such overload"),
            ("{dyn(1.5): 1}", "unsupported key type: double"),
            ("{dyn([1]): 1}", "unsupported key type: list"),
            ("d", "no such attribute(s): d"),
            ("size(dyn(1))", "no such overload: size(int)"),
        ],
    );
}

#[test]
fn macros_over_lists_and_maps() {
    let env = everything();
    all_true(
        &env,
        &[
            "[1, 2].all(i, i > 0) && ![1, -2].all(i, i > 0) && [].all(i, false)",
            "[1, 2].exists(i, i > 1) && ![1].exists(i, i > 1) && ![].exists(i, true)",
            "[1, 2].exists_one(i, i > 1) && ![2, 2].exists_one(i, i > 1) && ![].exists_one(i, true)",
            "[1, 2].existsOne(i, i > 1)",
            "[1, 2].map(i, i * 2) == [2, 4]",
            "[1, 2, 3].map(i, i > 1, i * 2) == [4, 6]",
            "[1, 2, 3].filter(i, i % 2 == 1) == [1, 3]",
            "{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])",
            "{'a': 1}.exists(k, k == 'a')",
            "{'a': 1, 'b': 2}.map(k, k) == ['a', 'b']",
            "{'a': 1, 'b': 2}.filter(k, k != 'a') == ['b']",
            "[[1], [2]].map(l, l.map(i, i + 1)) == [[2], [3]]",
            "[1].map(i, [2].map(i, i)) == [[2]]",
            // Errors are absorbed where an element decides.
            "[0, 1].exists(i, 1 / i == 1)",
            "![0, 1].all(i, 1 / i == 2)",
            "has({'a': 1}.a) == {'a': 1}.exists(k, k == 'a')",
            // Two variables.
            "[5, 6].all(i, v, v == i + 5)",
            "{'a': 1}.all(k, v, k == 'a' && v == 1)",
            "[5, 6].exists(i, v, i == 1 && v == 6)",
            "[5, 6].existsOne(i, v, v > 5)",
            "[5, 6].exists_one(i, v, v > 5)",
            "[5, 6].transformList(i, v, i * v) == [0, 6]",
            "[5, 6].transformList(i, v, i > 0, v) == [6]",
            "{'a': 1}.transformList(k, v, k + string(v)) == ['a1']",
            "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
            "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
            "[5].transformMap(i, v, v) == {0: 5}",
            "{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}",
            "[1, 2].transformMapEntry(i, v, v > 1, {v: i}) == {2: 1}",
            // Bindings are computed when first used.
            "cel.bind(a, 1, a + a) == 2",
            "cel.bind(a, 1 / 0, true)",
            "cel.bind(a, [1, 2], a.map(i, i + a.size())) == [3, 4]",
            "cel.bind(a, [1].map(q, q), [5].map(z, a[0] + z)) == [6]",
            "cel.bind(x, 'shadowed', x) == 'shadowed'",
            "[3, 1, 2].sortBy(i, -i) == [3, 2, 1]",
            "[{'n': 'b'}, {'n': 'a'}].sortBy(e, e.n) == [{'n': 'a'}, {'n': 'b'}]",
            "[].sortBy(e, e) == []",
        ],
    );
    all_fail(
        &env,
        &[
            ("[0].all(i, 1 / i > 0)", "division by zero"),
            ("[0].exists(i, 1 / i > 0)", "division by zero"),
            ("[1, 0].exists_one(i, 1 / i > 0)", "division by zero"),
            ("[0].map(i, 1 / i)", "division by zero"),
            ("[0].filter(i, 1 / i > 0)", "division by zero"),
            ("[1].all(i, dyn(i))", "no such overload"),
            ("dyn(1).all(i, true)", "got 'types.Int', expected iterable type"),
            ("cel.bind(a, 1 / 0, a)", "division by zero"),
            ("[1, 1].transformMapEntry(i, v, {v: i})", "insert failed: key 1 already exists"),
            ("[dyn(1), dyn('a')].sortBy(e, e)", "list elements must have the same type"),
        ],
    );
}

#[test]
fn optional_values() {
    let env = everything();
    all_true(
        &env,
        &[
            "optional.of(1).hasValue() && !optional.none().hasValue()",
            "optional.of(1).value() == 1",
            "optional.of(1) == optional.of(1) && optional.of(1) != optional.of(2) && optional.of(1) != optional.none()",
            "optional.none() == optional.none()",
            "!optional.ofNonZeroValue(0).hasValue() && optional.ofNonZeroValue(1).hasValue()",
            "!optional.ofNonZeroValue('').hasValue() && !optional.ofNonZeroValue([]).hasValue()",
            "!optional.ofNonZeroValue(null).hasValue() && !optional.ofNonZeroValue({}).hasValue()",
            "!optional.ofNonZeroValue(duration('0s')).hasValue() && !optional.ofNonZeroValue(false).hasValue()",
            "optional.none().or(optional.of(2)).value() == 2",
            "optional.of(1).or(optional.of(1 / 0)).value() == 1",
            "optional.none().orValue(3) == 3",
            "optional.of(1).orValue(1 / 0) == 1",
            "{'a': 1}.?a.value() == 1 && !{'a': 1}.?b.hasValue()",
            "{'a': {'b': 1}}.?a.b.value() == 1",
            "{'a': {'b': 1}}.?a.?b == optional.of(1)",
            "!{'a': {'b': 1}}.?x.b.hasValue()",
            "has({'a': {'b': 1}}.?a.b) && !has({'a': {'b': 1}}.?x.b)",
            "[1, 2][?1].value() == 2 && ![1][?5].hasValue() && ![1][?-1].hasValue()",
            "{'a': 1}[?'a'].value() == 1 && !{'a': 1}[?'b'].hasValue()",
            "optional.of([1])[0].value() == 1 && !optional.of([1])[5].hasValue()",
            "optional.of([1])[?0].value() == 1",
            "optional.of({'a': 1})['a'] == optional.of(1)",
            "optional.of({'a': 1})[?'b'] == optional.none()",
            "[?optional.of(1), ?optional.none(), 3] == [1, 3]",
            "{?'a': optional.of(1), ?'b': optional.none()} == {'a': 1}",
            "optional.of(1).optMap(v, v + 1) == optional.of(2)",
            "optional.none().optMap(v, v + 1) == optional.none()",
            "optional.of(1).optFlatMap(v, optional.of(v + 1)) == optional.of(2)",
            "optional.of(1).optFlatMap(v, optional.none()) == optional.none()",
            "{'a': 'b'}.?a.optMap(v, v + '!').orValue('none') == 'b!'",
            "[1, 2].first() == optional.of(1) && [1, 2].last() == optional.of(2) && ![].first().hasValue()",
            "optional.unwrap([optional.of(1), optional.none()]) == [1]",
            "[optional.of(1), optional.none()].unwrapOpt() == [1]",
        ],
    );
    all_fail(
        &env,
        &[
            ("optional.none().value()", "optional.none() dereference"),
            ("[?dyn(1)]", "cannot initialize optional list element from non-optional value 1"),
            ("{?'a': dyn(1)}", "cannot initialize optional entry 'a' from non-optional value 1"),
        ],
    );
}

#[test]
fn conversions() {
    let env = everything();
    all_true(
        &env,
        &[
            "int('42') == 42 && int('-1') == -1 && int(1.9) == 1 && int(-1.9) == -1 && int(7u) == 7 && int(5) == 5",
            "int(timestamp('1970-01-01T00:01:00Z')) == 60",
            "int(duration('1s')) == 1000000000",
            "uint('42') == 42u && uint(1.9) == 1u && uint(7) == 7u && uint(7u) == 7u",
            "double('1.5') == 1.5 && double(1) == 1.0 && double(1u) == 1.0 && double(2.5) == 2.5",
            "string(1) == '1' && string(1u) == '1' && string(true) == 'true' && string('a') == 'a'",
            "string(1.5) == '1.5' && string(1e6) == '1e+06' && string(123456.0) == '123456' && string(1e-5) == '1e-05'",
            "string(double('Infinity')) == '+Inf' && string(double('NaN')) == 'NaN'",
            "string(b'abc') == 'abc'",
            "string(timestamp('2020-01-01T00:00:00.5Z')) == '2020-01-01T00:00:00.5Z'",
            "string(duration('90s')) == '90s' && string(duration('1.5s')) == '1.5s' && string(duration('-1ms')) == '-0.001s'",
            "bytes('é') == b'\\xc3\\xa9' && bytes(b'a') == b'a'",
            "bool('true') && bool('1') && bool('T') && !bool('false') && !bool('F') && bool(true)",
            "timestamp(60) == timestamp('1970-01-01T00:01:00Z')",
            "timestamp(timestamp(0)) == timestamp(0) && duration(duration('1s')) == duration('1s')",
            "duration('1h2m3s') == duration('3723s') && duration('1.5h') == duration('90m')",
            "duration('1us') == duration('1000ns') && duration('-1s') < duration('0s') && duration('0') == duration('0s')",
            "dyn(1) == 1",
            "type(dyn(1)) == int",
        ],
    );
    all_fail(
        &env,
        &[
            ("int('a')", "type conversion error from 'string' to 'int'"),
            ("int('1.5')", "type conversion error from 'string' to 'int'"),
            ("int(1e30)", "integer overflow"),
            ("int(double('NaN'))", "integer overflow"),
            ("int(9223372036854775808u)", "integer overflow"),
            ("uint(-1)", "unsigned integer overflow"),
            ("uint(-1.0)", "unsigned integer overflow"),
            ("uint('-1')", "type conversion error from 'string' to 'uint'"),
            ("double('x')", "type conversion error from 'string' to 'double'"),
            ("bool('yes')", "type conversion error from 'string' to 'bool'"),
            ("string(b'\\xff')", "invalid UTF-8 in bytes, cannot convert to string"),
            ("timestamp(string('x'))", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
            ("duration(string('x'))", "type conversion error from 'string' to 'google.protobuf.Duration'"),
            ("timestamp(253402300800)", "timestamp overflow"),
            ("int(dyn([]))", "no such overload: int(list)"),
        ],
    );
}

#[test]
fn parts_of_timestamps_and_durations() {
    let env = everything();
    all_true(
        &env,
        &[
            "timestamp('2021-02-03T04:05:06.789Z').getFullYear() == 2021",
            "timestamp('2021-02-03T04:05:06.789Z').getMonth() == 1",
            "timestamp('2021-02-03T04:05:06.789Z').getDate() == 3",
            "timestamp('2021-02-03T04:05:06.789Z').getDayOfMonth() == 2",
            "timestamp('2021-02-03T04:05:06.789Z').getDayOfYear() == 33",
            "timestamp('2021-02-03T04:05:06.789Z').getDayOfWeek() == 3",
            "timestamp('2021-02-03T04:05:06.789Z').getHours() == 4",
            "timestamp('2021-02-03T04:05:06.789Z').getMinutes() == 5",
            "timestamp('2021-02-03T04:05:06.789Z').getSeconds() == 6",
            "timestamp('2021-02-03T04:05:06.789Z').getMilliseconds() == 789",
            "timestamp('2021-02-03T23:30:00Z').getHours('+01:00') == 0",
            "timestamp('2021-02-03T23:30:00Z').getDate('+01:00') == 4",
            "timestamp('2021-02-03T00:30:00Z').getHours('-08:30') == 16",
            "timestamp('2021-02-03T00:30:00Z').getMinutes('-08:45') == 45",
            "timestamp('2021-02-03T00:30:00Z').getFullYear('UTC') == 2021",
            "timestamp('2020-12-31T23:59:59Z').getDayOfYear() == 365",
            "timestamp('2021-01-01T00:00:00+02:00').getFullYear() == 2020",
            "timestamp('1969-12-31T23:59:59Z').getSeconds() == 59",
            "duration('3h').getHours() == 3 && duration('90m').getHours() == 1",
            "duration('3h').getMinutes() == 180 && duration('1m').getSeconds() == 60",
            "duration('1.5s').getMilliseconds() == 1500 && duration('-90s').getMinutes() == -1",
        ],
    );
    all_fail(
        &env,
        &[
            ("timestamp(0).getHours('+01:99')", "timezone offset minutes out of range [0, 59]: +01:99"),
            ("timestamp(0).getHours('+01:-1')", "timezone offset minutes out of range [0, 59]: +01:-1"),
            ("timestamp(0).getHours('a:b')", r#"strconv.Atoi: parsing "a": invalid syntax"#),
            ("timestamp(0).getHours('+01:')", r#"strconv.Atoi: parsing "": invalid syntax"#),
            (
                "timestamp(0).getHours('99999999999999999999:00')",
                r#"strconv.Atoi: parsing "99999999999999999999": value out of range"#,
            ),
        ],
    );
}

#[test]
fn parts_of_timestamps_in_named_zones() {
    let env = everything();
    all_true(
        &env,
        &[
            // Clocks go forward: 01:00 UTC is where two becomes three.
            "timestamp('2024-03-31T00:59:59Z').getHours('Europe/Berlin') == 1",
            "timestamp('2024-03-31T01:00:00Z').getHours('Europe/Berlin') == 3",
            // Clocks go back: the hour from two to three comes twice.
            "timestamp('2024-10-27T00:30:00Z').getHours('Europe/Berlin') == 2",
            "timestamp('2024-10-27T01:30:00Z').getHours('Europe/Berlin') == 2",
            "timestamp('2024-10-27T02:00:00Z').getHours('Europe/Berlin') == 3",
            // The other half of the world, and rules that go on beyond what is written down.
            "timestamp('2024-01-01T00:00:00Z').getHours('Australia/Sydney') == 11",
            "timestamp('2024-07-01T00:00:00Z').getHours('Australia/Sydney') == 10",
            "timestamp('2150-07-01T12:00:00Z').getHours('America/New_York') == 8",
            "timestamp('2150-01-01T12:00:00Z').getHours('America/New_York') == 7",
            // Half and quarter hours, and half an hour of summer.
            "timestamp('2024-01-01T00:00:00Z').getMinutes('Asia/Kolkata') == 30",
            "timestamp('2024-01-01T00:00:00Z').getHours('Asia/Kathmandu') == 5",
            "timestamp('2024-01-01T00:00:00Z').getMinutes('Asia/Kathmandu') == 45",
            "timestamp('2024-01-01T00:00:00Z').getMinutes('Australia/Lord_Howe') == 0",
            "timestamp('2024-07-01T00:00:00Z').getMinutes('Australia/Lord_Howe') == 30",
            // Long ago: other rules, and the sun's own time before there were any.
            "timestamp('1945-06-01T00:00:00Z').getHours('Europe/Berlin') == 3",
            "timestamp('1986-07-01T00:00:00Z').getMinutes('Asia/Kathmandu') == 45",
            "timestamp('1985-07-01T00:00:00Z').getMinutes('Asia/Kathmandu') == 30",
            "timestamp('1800-01-01T00:00:00Z').getMinutes('Europe/Berlin') == 53",
            "timestamp('1800-01-01T00:00:00Z').getSeconds('Europe/Berlin') == 28",
            // A day that did not exist: Samoa crossed the date line.
            "timestamp('2011-12-30T09:59:59Z').getDate('Pacific/Apia') == 29",
            "timestamp('2011-12-30T10:00:00Z').getDate('Pacific/Apia') == 31",
            // Every part.
            "timestamp('2023-12-31T23:30:15.789Z').getFullYear('Europe/Berlin') == 2024",
            "timestamp('2023-12-31T23:30:15.789Z').getMonth('Europe/Berlin') == 0",
            "timestamp('2023-12-31T23:30:15.789Z').getDate('Europe/Berlin') == 1",
            "timestamp('2023-12-31T23:30:15.789Z').getDayOfMonth('Europe/Berlin') == 0",
            "timestamp('2023-12-31T23:30:15.789Z').getDayOfYear('Europe/Berlin') == 0",
            "timestamp('2023-12-31T23:30:15.789Z').getDayOfWeek('Europe/Berlin') == 1",
            "timestamp('2023-12-31T23:30:15.789Z').getMinutes('Europe/Berlin') == 30",
            "timestamp('2023-12-31T23:30:15.789Z').getSeconds('Europe/Berlin') == 15",
            "timestamp('2023-12-31T23:30:15.789Z').getMilliseconds('Europe/Berlin') == 789",
            // Old names and short ones; the ends of time.
            "timestamp('2024-01-01T00:00:00Z').getHours('US/Central') == 18",
            "timestamp('2024-01-01T00:00:00Z').getHours('EST') == 19",
            "timestamp('2024-01-01T00:00:00Z').getHours('Etc/GMT+5') == 19",
            "timestamp('2024-01-01T00:00:00Z').getHours('') == 0",
            "timestamp('9999-12-31T23:59:59Z').getFullYear('Europe/Berlin') == 10000",
            "timestamp('0001-01-01T00:00:00Z').getFullYear('America/New_York') == 0",
        ],
    );
    all_fail(
        &env,
        &[
            ("timestamp(0).getHours('Mars/Phobos')", "unknown time zone Mars/Phobos"),
            ("timestamp(0).getHours('europe/berlin')", "unknown time zone europe/berlin"),
            ("timestamp(0).getHours('Europe')", "unknown time zone Europe"),
            ("timestamp(0).getHours(' ')", "unknown time zone  "),
            ("timestamp(0).getHours('../UTC')", "time: invalid location name"),
            ("timestamp(0).getHours('/etc/localtime')", "time: invalid location name"),
        ],
    );
}

#[test]
fn string_predicates() {
    let env = everything();
    all_true(
        &env,
        &[
            "'hello'.contains('ell') && !'hello'.contains('x') && 'a'.contains('')",
            "'hello'.startsWith('he') && !'hello'.startsWith('lo')",
            "'hello'.endsWith('lo') && !'hello'.endsWith('he')",
            "'hello'.matches('^h.*o$') && 'hello'.matches('ell') && !'hello'.matches('^ell')",
            "matches('hello', 'l+')",
            r"'a1'.matches('^\\w\\d$') && !'é'.matches('^\\w$')",
            "'hello'.matches('h' + '.')",
        ],
    );
    all_fail(
        &env,
        &[
            ("'a'.matches('(' + '')", "error parsing regexp: missing closing ): `(`"),
            ("dyn(1).matches('a')", "no such overload: matches(int, string)"),
        ],
    );
}

#[test]
fn messages_can_be_constructed() {
    let env = everything();
    all_true(
        &env,
        &[
            "Object{spec: Object.spec{replicas: 3}}.spec.replicas == 3",
            "Object{a: 1} == Object{a: 1} && Object{a: 1} != Object{a: 2} && Object{a: 1} != Object{b: 1}",
            "has(Object{a: 1}.a) && !has(Object{a: 1}.b)",
            "JSONPatch{op: 'add', path: '/a', value: [1]}.op == 'add'",
            "JSONPatch{op: 'test', ?value: optional.none(), path: ''} == JSONPatch{op: 'test', path: ''}",
            "type(Object{}) == Object",
            "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b~c'), value: 1}][0].path == '/a~1b~0c'",
        ],
    );
    all_fail(&env, &[("Object{}.a", "no such key: a")]);
}
