//! The areas of the CEL specification, one table each: what the language promises beyond what `language.rs` and
//! `libraries.rs` hold already. Where Kubernetes' evaluator differs from the specification, the rows say what that does.

mod table;

use orlop_cel::{Activation, Budget, Env, Type, Value};
use table::{all_fail, all_refused, all_true, assert_none, everything};

#[test]
fn numbers_of_different_types_compare_by_value() {
    all_true(
        &everything(),
        &[
            "dyn(2) == 2.0 && dyn(2u) == 2.0 && dyn(2) == 2u",
            "dyn(2) != 2.5 && dyn(2u) != dyn(-2)",
            "dyn(-1) < 0u && dyn(0u) > -1",
            "1 < 1.5 && 2u > 1.5 && 1.5 >= 1u && -0.5 < 0u",
            "dyn(18446744073709551615u) > 9223372036854775807",
            "dyn(-9223372036854775808) < 0u",
            // Integers become doubles first, so that neighbours beyond 2^53 cannot be told from what they round to.
            "dyn(9007199254740993) == 9007199254740992.0",
            "!(dyn(9223372036854775807) < 9223372036854775808.0)",
            "dyn(9223372036854775807) >= 9223372036854775808.0",
            "dyn(9223372036854775808.0) <= 9223372036854775807",
            "dyn(18446744073709551615u) == 18446744073709551616.0",
            "dyn(1e19) > 9223372036854775807 && dyn(-1e19) < -9223372036854775807",
            "dyn(2e19) > 18446744073709551615u",
            "double('inf') > 9223372036854775807 && double('-inf') < -9223372036854775807",
            "dyn(double('nan')) != 1 && !(dyn(double('nan')) == dyn(1u))",
            "2 in dyn([2.0]) && 2u in dyn([2]) && !(dyn(2.5) in dyn([2]))",
            "dyn(2.0) in {2: 'a'} && dyn(2u) in {2: 'a'} && !(dyn(2.5) in {2: 'a'})",
            "dyn({1: 'a'})[1u] == 'a' && dyn({1u: 'a'})[1] == 'a' && dyn({1: 'a'})[1.0] == 'a'",
            "dyn([1, 2]) == [1.0, 2.0] && dyn({'a': [1u]}) == {'a': [1]}",
        ],
    );
}

#[test]
fn equality_across_types_is_false_and_not_an_error() {
    let env = everything();
    all_true(
        &env,
        &[
            "dyn('1') != 1 && dyn(b'a') != 'a' && dyn(true) != 1 && dyn(null) != 0",
            "dyn([1]) != {0: 1} && dyn({}) != [] && dyn([]) == []",
            "[dyn(1), dyn('a')] != [dyn(1), dyn('b')]",
            "dyn([[1], []]) == [[1], []] && dyn([[1], []]) != [[], [1]]",
            "{'a': null} == {'a': null} && {'a': null} != {'b': null}",
            "dyn({'a': 1}) != {'a': 1, 'b': 2}",
            "type(1) != type(1u) && type([1]) == type(['a']) && type(type('a')) == type",
            "timestamp('2020-01-01T01:00:00+01:00') == timestamp('2020-01-01T00:00:00Z')",
            "duration('60s') == duration('1m') && dyn(duration('60s')) != 60",
            "optional.of(1) != optional.none() && optional.none() == optional.none()",
            "dyn(optional.of(1)) != 1",
        ],
    );
    all_fail(
        &env,
        &[
            ("dyn(1) < 'a'", "no such overload"),
            ("dyn([1]) < dyn([2])", "no such overload"),
            ("dyn(null) >= null", "no such overload"),
            ("dyn({}) > dyn({})", "no such overload"),
        ],
    );
    all_refused(
        &env,
        &[
            ("[1] < [2]", 1, 5, "found no matching overload for '_<_' applied to '(list(int), list(int))'"),
            ("1 == 'a'", 1, 3, "found no matching overload for '_==_' applied to '(int, string)'"),
            (
                "[1] == ['a']",
                1,
                5,
                "found no matching overload for '_==_' applied to '(list(int), list(string))'",
            ),
            ("null == 1", 1, 6, "found no matching overload for '_==_' applied to '(null, int)'"),
            ("[1, 'a']", 1, 5, "expected type 'int' but found 'string'"),
            ("{'a': 1, 2: 3}", 1, 10, "expected type 'string' but found 'int'"),
            ("[1, null]", 1, 5, "expected type 'int' but found 'null'"),
        ],
    );
}

#[test]
fn conversions_match_go() {
    let env = everything();
    all_true(
        &env,
        &[
            "int('+7') == 7 && int('-0') == 0 && int('007') == 7",
            "uint('18446744073709551615') == 18446744073709551615u",
            "int(7.9) == 7 && int(-7.9) == -7 && uint(7.9) == 7u",
            "int(9223372036854774784.0) == 9223372036854774784",
            "double('1.') == 1.0 && double('.5') == 0.5 && double('+1e3') == 1000.0 && double('1E-2') == 0.01",
            "double('Infinity') == double('+inf') && double('-INF') < 0.0",
            "double('NaN') != double('nan')",
            "string(1e6) == '1e+06' && string(123456.0) == '123456' && string(0.1) == '0.1' && string(1e-7) == '1e-07'",
            "string(-0.0) == '-0' && string(double('inf')) == '+Inf'",
            "string(18446744073709551615u) == '18446744073709551615' && string(true) == 'true'",
            "string(b'\\xe2\\x82\\xac') == '€' && bytes('€') == b'\\xe2\\x82\\xac'",
            "bool('1') && bool('t') && bool('True') && !bool('F') && !bool('false') && !bool('0')",
            "timestamp(0) == timestamp('1970-01-01T00:00:00Z') && int(timestamp('1969-12-31T23:59:59.5Z')) == -1",
            "timestamp('2020-01-01T00:00:00,5Z') == timestamp('2020-01-01T00:00:00.500Z')",
            "timestamp('2020-01-02T00:00:00+24:00') == timestamp('2020-01-01T00:00:00Z')",
            "string(timestamp('2020-01-01T00:00:00.10+02:00')) == '2020-01-01T00:00:00.1+02:00'",
            "duration('1h30m') == duration('1.5h') && duration('1us') == duration('1µs') && duration('0') == duration('0s')",
            "string(duration('-1m1.001s')) == '-61.001s'",
            "dyn(1) + 1 == 2 && type(dyn('a')) == string",
        ],
    );
    all_fail(
        &env,
        &[
            ("int('1.0')", "type conversion error from 'string' to 'int'"),
            ("int('')", "type conversion error from 'string' to 'int'"),
            ("int('1_000')", "type conversion error from 'string' to 'int'"),
            ("int('9223372036854775808')", "type conversion error from 'string' to 'int'"),
            ("uint('+1')", "type conversion error from 'string' to 'uint'"),
            ("uint('-1')", "type conversion error from 'string' to 'uint'"),
            ("int(9223372036854775808u)", "integer overflow"),
            ("int(9223372036854775807.0)", "integer overflow"),
            ("int(double('nan'))", "integer overflow"),
            ("uint(-1)", "unsigned integer overflow"),
            ("uint(-0.5) == 0u ? uint(-1.0) : 0u", "unsigned integer overflow"),
            ("uint(18446744073709551616.0)", "unsigned integer overflow"),
            ("double('1e400')", "type conversion error from 'string' to 'double'"),
            ("double('-1e999')", "type conversion error from 'string' to 'double'"),
            ("double('1,5')", "type conversion error from 'string' to 'double'"),
            ("bool('yes')", "type conversion error from 'string' to 'bool'"),
            ("bool('tRUE')", "type conversion error from 'string' to 'bool'"),
            ("string(b'\\x80')", "invalid UTF-8 in bytes, cannot convert to string"),
            (
                "timestamp('2020-01-01t00:00:00z' + '')",
                "type conversion error from 'string' to 'google.protobuf.Timestamp'",
            ),
            (
                "timestamp('2020-01-01' + '')",
                "type conversion error from 'string' to 'google.protobuf.Timestamp'",
            ),
            (
                "timestamp('2021-02-29T00:00:00Z' + '')",
                "type conversion error from 'string' to 'google.protobuf.Timestamp'",
            ),
            ("duration('1d' + '')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
            ("timestamp(253402300800)", "timestamp overflow"),
        ],
    );
}

#[test]
fn integer_and_double_arithmetic() {
    let env = everything();
    all_true(
        &env,
        &[
            "-7 / 2 == -3 && 7 / -2 == -3 && -7 % 2 == -1 && 7 % -2 == 1",
            "9223372036854775807 - -0 == 9223372036854775807",
            "-9223372036854775807 - 1 == -9223372036854775808",
            "4294967296u * 4294967295u == 18446744069414584320u",
            "1.0 / 0.0 == double('inf') && -1.0 / 0.0 == double('-inf')",
            "1e308 * 10.0 == double('inf') && 1e-308 / 1e308 == 0.0",
            "double('nan') != double('nan') && -0.0 == 0.0 && 1.0 / -0.0 < 0.0",
            "0.1 + 0.2 != 0.3",
            "2 - 3 - 4 == -5 && 2 * 3 % 4 == 2 && 2 + 3 * 4 == 14 && -2 - -2 == 0",
        ],
    );
    all_fail(
        &env,
        &[
            ("9223372036854775807 * 2", "integer overflow"),
            ("-9223372036854775808 - 1", "integer overflow"),
            ("-(-9223372036854775808)", "integer overflow"),
            ("-9223372036854775808 / -1", "integer overflow"),
            ("-9223372036854775808 % -1", "integer overflow"),
            ("18446744073709551615u + 1u", "unsigned integer overflow"),
            ("0u - 1u", "unsigned integer overflow"),
            ("4294967296u * 4294967296u", "unsigned integer overflow"),
            ("1u / 0u", "division by zero"),
            ("1u % 0u", "modulus by zero"),
            ("double('nan') < 1.0", "NaN values cannot be ordered"),
        ],
    );
    all_refused(
        &env,
        &[
            ("1.0 % 2.0", 1, 5, "found no matching overload for '_%_' applied to '(double, double)'"),
            ("1 + 1u", 1, 3, "found no matching overload for '_+_' applied to '(int, uint)'"),
            ("1 + 1.0", 1, 3, "found no matching overload for '_+_' applied to '(int, double)'"),
            ("-1u", 1, 1, "found no matching overload for '-_' applied to '(uint)'"),
            ("-true", 1, 1, "found no matching overload for '-_' applied to '(bool)'"),
            ("9223372036854775808", 1, 1, "invalid int literal"),
            ("18446744073709551616u", 1, 1, "invalid uint literal"),
        ],
    );
}

#[test]
fn lists_maps_and_membership() {
    let env = everything();
    all_true(
        &env,
        &[
            "[] + [] == [] && [1] + [] == [1] && [[1]] + [[2]] == [[1], [2]]",
            "size([[], []]) == 2 && [].size() == 0 && size({}) == 0 && {'a': {}}.size() == 1",
            "[[1, 2], [3]][0][1] == 2 && {'a': {'b': [1]}}.a['b'][0] == 1",
            "dyn([1, 2])[dyn(1.0)] == 2 && dyn([1, 2])[1u] == 2",
            "{true: 1}[true] == 1 && {1u: 2}[1u] == 2 && {'': 1}[''] == 1",
            // Of entries with one key the last counts.
            "{'a': 1, 'b': 2, 'a': 3} == {'a': 3, 'b': 2}",
            "{'a': 1, ?'a': optional.none()} == {}",
            "!(1 in []) && !('a' in {}) && [1] in [[1]] && {} in [{}]",
            "has({'a': 0}.a) && has({'a': ''}.a) && has({'a': null}.a) && !has({}.a)",
            "has({'a': {'b': 1}}.a.b) && !has({'a': {'b': 1}}.a.c)",
            "dyn({'a': 1}).a == 1 && dyn({'a': {'b': 1}}).a.b == 1",
        ],
    );
    all_fail(
        &env,
        &[
            ("[][0]", "index out of bounds: 0"),
            ("dyn([0])[18446744073709551615u]", "index out of bounds: 18446744073709551615"),
            ("{}['a']", "no such key: a"),
            ("{1: 2}[dyn(1.5)]", "no such key: 1.5"),
            ("dyn({'a': 1}).a.b", "no such key: b"),
            ("dyn('a').b", "no such key: b"),
        ],
    );
}

#[test]
fn logical_operators_absorb_errors() {
    let env = everything();
    all_true(
        &env,
        &[
            "true || 1 / 0 > 0 && 1 / 0 > 0",
            "(1 / 0 > 0 || true) && !(1 / 0 > 0 && false)",
            "(true ? 1 : 1 / 0) == 1 && (false ? 1 / 0 : 2) == 2",
            "(false ? 1 : true ? 2 : 3) == 2",
            "!(true && false) || true && false",
            "[1, 0, 2].exists(x, 2 / x == 1) && ![0, 3].all(x, 3 / x == 2)",
            "[1, 2].all(x, x > 0 || x / 0 > 0)",
        ],
    );
    all_fail(
        &env,
        &[
            ("1 / 0 > 0 || false", "division by zero"),
            ("(1 / 0 > 0 ? true : true)", "division by zero"),
            ("[0, 3].exists(x, 3 / x == 2)", "division by zero"),
            ("[0, 1].all(x, 1 / x == 1)", "division by zero"),
            ("[0].exists_one(x, 1 / x == 1)", "division by zero"),
            ("[1, 0, 1].exists_one(x, 1 / x == 1)", "division by zero"),
            ("dyn(1) && true", "no such overload"),
            ("false || dyn('a')", "no such overload"),
            ("!dyn(1)", "no such overload"),
            ("dyn(1) ? 1 : 2", "no such overload"),
        ],
    );
}

#[test]
fn macro_variables_shadow_and_nest() {
    let env = everything();
    all_true(
        &env,
        &[
            "[1, 2].map(x, [3].map(x, x * 2)) == [[6], [6]]",
            "[1, 2].map(x, [10].map(y, x + y)) == [[11], [12]]",
            "{'a': 1, 'b': 2}.filter(k, k != 'a') == ['b']",
            "{'a': 1}.exists(k, k == 'a') && {'a': 1}.all(k, k == 'a') && {'a': 1}.exists_one(k, true)",
            "[1, 2, 3].filter(x, x > 1).map(x, x * x) == [4, 9]",
            "[3, 4].all(i, v, v - i == 3) && {'a': 'a', 'b': 'b'}.all(k, v, k == v)",
            "[3, 4].exists(i, v, i == 1 && v == 4) && {'a': 1}.exists(k, v, v == 1)",
            "[3, 3].existsOne(i, v, i == 0 && v == 3)",
            "[3, 4].transformList(i, v, i * v) == [0, 4] && [3, 4].transformList(i, v, v > 3, i) == [1]",
            "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2} && ['x'].transformMap(i, v, v) == {0: 'x'}",
            "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
            "['x', 'y'].transformMapEntry(i, v, {v: i}) == {'x': 0, 'y': 1}",
            "cel.bind(a, 2, cel.bind(b, a * 3, a + b)) == 8",
            "cel.bind(a, [1, 2], a.all(x, x in a))",
        ],
    );
    all_refused(
        &env,
        &[
            ("[1].map(1, 2)", 1, 9, "argument is not an identifier"),
            ("[1].all(x.y, true)", 1, 10, "argument must be a simple name"),
            ("[1].all(x, y, z, true)", 1, 8, "undeclared reference to 'all' (in container '')"),
            ("has(x)", 1, 5, "invalid argument to has() macro"),
            ("has({}['a'])", 1, 7, "invalid argument to has() macro"),
            (
                "1.map(x, x)",
                1,
                1,
                "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
            ),
        ],
    );
}

#[test]
fn strings_are_measured_in_code_points() {
    let env = everything();
    all_true(
        &env,
        &[
            "size('e\\u0301') == 2 && size('\\U0001F469\\u200D\\U0001F4BB') == 3 && size(bytes('\\U0001F600')) == 4",
            "'straße'.charAt(4) == 'ß' && 'straße'.charAt(6) == ''",
            "'ñandú'.substring(1) == 'andú' && 'ñandú'.substring(0, 1) == 'ñ' && 'ñ'.substring(1) == ''",
            "'añoño'.indexOf('ño') == 1 && 'añoño'.indexOf('ño', 2) == 3 && 'añoño'.indexOf('x') == -1",
            "'añoño'.lastIndexOf('ño') == 3 && 'añoño'.lastIndexOf('ño', 2) == 1 && 'añoño'.lastIndexOf('ño', 0) == -1",
            "'éaéaé'.lastIndexOf('é', 3) == 2 && 'éaéaé'.lastIndexOf('é', 1) == 0 && 'éé'.lastIndexOf('éé', 1) == 0",
            "'aaa'.lastIndexOf('aa', 2) == 1 && 'aaa'.lastIndexOf('aa', 0) == 0 && 'aaa'.lastIndexOf('aaaa', 2) == -1",
            "'añ'.indexOf('') == 0 && 'añ'.indexOf('', 1) == 1 && 'añ'.lastIndexOf('') == 2 && 'añ'.lastIndexOf('', 1) == 1",
            "'abc'.indexOf('c', 30) == -1 && 'abc'.lastIndexOf('c', 30) == -1",
            "'aÉa'.lowerAscii() == 'aÉa' && 'Aé'.lowerAscii() == 'aé' && 'aé'.upperAscii() == 'Aé'",
            "'\\u2003 a\\u00a0\\u0085'.trim() == 'a'",
            "'a,b,,c'.split(',') == ['a', 'b', '', 'c'] && 'abc'.split('') == ['a', 'b', 'c'] && ''.split(',') == ['']",
            "'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a,b'.split(',', 0) == [] && 'a,b'.split(',', 1) == ['a,b']",
            "'aéaé'.replace('é', 'e') == 'aeae' && 'aéaé'.replace('é', '', 1) == 'aaé' && 'ab'.replace('', '-') == '-a-b-'",
            "['a', 'b'].join() == 'ab' && ['a'].join(', ') == 'a' && [].join('x') == ''",
            "'a' < 'b' && 'a' < 'aa' && 'Z' < 'a' && '' < 'a' && '\\uffff' < '\\U00010000'",
            "b'\\x00' < b'\\x01' && b'a' + b'b' == b'ab'",
            "'héllo'.startsWith('hé') && 'héllo'.endsWith('llo') && 'héllo'.contains('él') && ''.contains('')",
            "'aXb'.matches('[[:upper:]]') && !'ab'.matches('^b') && 'a\\nb'.matches('(?s)a.b') && 'ÀÉ'.matches('^\\\\p{Lu}+$')",
        ],
    );
    all_fail(
        &env,
        &[
            ("'abc'.charAt(4)", "index out of range: 4"),
            ("'abc'.indexOf('c', -1)", "index out of range: -1"),
            ("'abc'.lastIndexOf('c', -1)", "index out of range: -1"),
            ("'abc'.substring(4)", "index out of range: 4"),
            ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ],
    );
}

#[test]
fn timestamp_accessors_take_offsets() {
    let env = everything();
    all_true(
        &env,
        &[
            "timestamp('2009-02-13T23:31:30.123456789Z').getMilliseconds() == 123",
            "timestamp('2009-02-13T23:31:30Z').getDate() == 13 && timestamp('2009-02-13T23:31:30Z').getDayOfMonth() == 12",
            "timestamp('2009-02-13T23:31:30Z').getDate('+01:00') == 14 && timestamp('2009-02-13T23:31:30Z').getHours('05:45') == 5",
            "timestamp('2009-01-01T00:30:00Z').getFullYear('-01:00') == 2008",
            "timestamp('2008-12-31T00:00:00Z').getDayOfYear() == 365 && timestamp('2009-02-13T00:00:00Z').getDayOfWeek() == 5",
            "timestamp('2009-02-13T23:31:30Z').getMinutes('-00:30') == 1 && timestamp('2009-02-13T23:31:30Z').getMonth() == 1",
            "duration('3730s').getHours() == 1 && duration('3730s').getMinutes() == 62 && duration('1.5s').getMilliseconds() == 1500",
            "duration('-90s').getMinutes() == -1 && duration('-90s').getSeconds() == -90",
            "timestamp('2020-03-01T00:00:00Z') - duration('24h') == timestamp('2020-02-29T00:00:00Z')",
            "timestamp('2020-01-01T00:00:00Z') - timestamp('2019-01-01T00:00:00Z') == duration('8760h')",
            "duration('1h') - duration('90m') == duration('-30m') && duration('1s') < duration('1m')",
            "timestamp('0001-01-01T00:00:00Z') < timestamp('9999-12-31T23:59:59.999999999Z')",
        ],
    );
    all_fail(
        &env,
        &[
            ("timestamp('0001-01-01T00:00:00Z') - duration('1ns')", "timestamp overflow"),
            ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
            ("duration('2562047h') + duration('1h')", "duration overflow"),
        ],
    );
}

#[test]
fn optional_chaining_propagates_absence() {
    let env = everything();
    all_true(
        &env,
        &[
            "{'a': {'b': 1}}.?a.b == optional.of(1) && {'a': {}}.?a.b == optional.none() && {}.?a.b.c == optional.none()",
            "[[1]][?0][?0] == optional.of(1) && [[1]][?0][?1] == optional.none() && [1][?-1] == optional.none()",
            "dyn({'a': null}).?a.b == optional.none() && dyn({'a': 1}).?a.b == optional.none()",
            "optional.of({'a': 1})['a'] == optional.of(1) && optional.of([1])[1] == optional.none()",
            "{}.?a.orValue(1) == 1 && {'a': 2}.?a.orValue(1) == 2",
            "{}.?a.or({'b': 3}.?b).value() == 3 && optional.of(1).or(optional.of(2)).value() == 1",
            "optional.ofNonZeroValue('').hasValue() == false && optional.ofNonZeroValue([0]).hasValue()",
            "!optional.ofNonZeroValue(null).hasValue() && optional.of(null).hasValue()",
            "!optional.ofNonZeroValue({}).hasValue() && !optional.ofNonZeroValue(0u).hasValue() && !optional.ofNonZeroValue(0.0).hasValue()",
            "[?optional.none(), 1, ?optional.of(2)] == [1, 2] && {?'a': {}.?b, 'c': 1} == {'c': 1}",
            "{}.?a.optMap(x, x + 1) == optional.none() && {'a': 1}.?a.optMap(x, x + 1) == optional.of(2)",
            "optional.of([1]).optFlatMap(x, x[?0]) == optional.of(1) && optional.of([]).optFlatMap(x, x[?0]) == optional.none()",
            "has({'a': {'b': 1}}.?a.b) && !has({'a': {}}.?a.b) && !has({}.?a.b)",
            "type(optional.of(1)) == optional_type",
        ],
    );
    all_fail(&env, &[("{}.?a.value()", "optional.none() dereference")]);
    all_refused(
        &env,
        &[
            ("[?1]", 1, 3, "expected type 'optional_type(int)' but found 'int'"),
            (
                "optional.of(1).orValue('a')",
                1,
                23,
                "found no matching overload for 'orValue' applied to 'optional_type(int).(string)'",
            ),
        ],
    );
}

#[test]
fn type_inference() {
    let env = everything();
    let rows = [
        ("[]", "list(dyn)"),
        ("{}", "map(dyn, dyn)"),
        ("[[], [1]]", "list(list(int))"),
        ("{'a': []}.a", "list(dyn)"),
        ("[1].map(x, [x])", "list(list(int))"),
        ("[{'a': 1}][0].a", "int"),
        ("{'a': 1}.map(k, k)", "list(string)"),
        ("true ? 1 : dyn('a')", "dyn"),
        ("true ? [] : [1]", "list(int)"),
        ("[dyn(1)] + ['a']", "list(dyn)"),
        ("optional.of(1)", "optional_type(int)"),
        ("optional.none()", "optional_type(dyn)"),
        ("[1][?0]", "optional_type(int)"),
        ("{'a': {'b': 'c'}}.?a.b", "optional_type(string)"),
        ("[1].first()", "optional_type(int)"),
        ("{'a': 1}.transformMap(k, v, [v])", "map(string, list(int))"),
        ("type(1)", "type(int)"),
        ("dyn(1).a.b", "dyn"),
        ("1 < 2 && 'a'.size() == 1", "bool"),
        ("timestamp('2020-01-01T00:00:00Z') - duration('1s')", "timestamp"),
        ("cel.bind(a, 'x', [a])", "list(string)"),
        ("null", "null"),
    ];
    let found = |row: &str| env.compile(row).map_or_else(|e| e.to_string(), |p| p.result_type().to_string());
    let failures: Vec<String> = rows
        .iter()
        .map(|(row, expected)| (row, expected, found(row)))
        .filter(|(_, expected, found)| *expected != found)
        .map(|(row, expected, found)| format!("{row}\n    expected {expected}\n    gave     {found}"))
        .collect();
    assert_none(&failures, rows.len());
}

#[test]
fn unparser_round_trips() {
    let env = everything();
    all_true(
        &env,
        &[
            "1\t+\n1\r\n== \u{c}2 // done",
            "((((((((1)))))))) == 1",
            "'\\u00C4\\xc4\\304' == 'ÄÄÄ' && b'\\xc4\\304' == b'\\304\\xC4' && b'Ä' == b'\\xc3\\x84'",
            "'''it's''' + \"\"\"\"quoted\" \"\"\" == 'it\\'s\"quoted\" '",
            "r'a\\n' != 'a\\n' && size(r'a\\n') == 3 && R\"\\\" == '\\\\'",
            "0xff == 255 && -0x10 == -16 && 0xFu == 15u",
            "1.5e+2 == 150.0 && 2E1 == 20.0",
            "[1, 2, ][1] == 2 && {'a': 1, }.a == 1",
            "!!!false && --1 == 1",
            "1 in [1] == true",
            "{'for': 1, 'while': 2}.for == 1",
        ],
    );
    all_refused(
        &env,
        &[
            ("while", 1, 1, "reserved identifier: while"),
            ("0XA", 1, 2, "Syntax error: extraneous input 'XA' expecting <EOF>"),
            ("b'\\u00c4'", 1, 1, "unable to unescape string"),
            (
                "1 == 2 == ",
                1,
                11,
                "Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
            ),
            ("{'a': 1}.`a`", 1, 10, "unsupported syntax: '`'"),
        ],
    );
}

#[test]
fn qualified_variables_resolve() {
    let env = Env::builder()
        .variable("a.b", Type::map(Type::String, Type::Int))
        .variable("a.b.c", Type::String)
        .variable("x", Type::Int)
        .build();
    let map = Value::Map(
        std::collections::BTreeMap::from([(orlop_cel::Key::String("d".into()), Value::Int(1))]).into(),
    );
    let activation = Activation::new()
        .value("a.b", map)
        .value("a.b.c", Value::string("the longest name wins"))
        .value("x", Value::Int(7));
    for (row, expected) in [
        ("a.b.c", "the longest name wins"),
        ("a.b.d", "1"),
        (".x", "7"),
        ("[1].map(x, x)[0]", "1"),
        ("[1].map(x, .x)[0]", "7"),
    ] {
        let program = env.compile(row).unwrap_or_else(|errors| panic!("{row}: {errors}"));
        let value = program.evaluate(&activation, &mut Budget::unlimited());
        let text = value.map_or_else(
            |error| format!("error: {error}"),
            |value| match value {
                Value::String(text) => text.to_string(),
                other => other.to_string(),
            },
        );
        assert_eq!(text, expected, "{row}");
    }
}
