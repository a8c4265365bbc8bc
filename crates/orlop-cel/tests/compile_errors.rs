//! Expressions that are refused, and how. The texts reach users through `kubectl`.

mod table;

use orlop_cel::{Env, Type};
use table::{all_refused, everything};

const START: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

#[test]
fn syntax_errors_list_expected_tokens() {
    let expected =
        |kind: &str, token: &str| format!("Syntax error: {kind} input '{token}' expecting {START}");
    let end = expected("mismatched", "<EOF>");
    let plus = expected("mismatched", "+");
    let star = expected("extraneous", "*");
    all_refused(
        &everything(),
        &[
            ("", 1, 1, &end),
            ("1 +", 1, 4, &end),
            ("1 + +", 1, 5, &plus),
            ("*1", 1, 1, &star),
            ("1 2", 1, 3, "Syntax error: extraneous input '2' expecting <EOF>"),
            ("1 + 2\n3 +", 2, 1, "Syntax error: mismatched input '3' expecting <EOF>"),
            ("f(){}", 1, 4, "Syntax error: mismatched input '{' expecting <EOF>"),
            ("{'a'}", 1, 5, "Syntax error: mismatched input '}' expecting ':'"),
            ("Object{b}", 1, 9, "Syntax error: mismatched input '}' expecting ':'"),
            ("{'a': 1}.'a'", 1, 10, "Syntax error: no viable alternative at input '.'a''"),
            ("d.true", 1, 3, "Syntax error: mismatched input 'true' expecting IDENTIFIER"),
            ("$", 1, 1, "Syntax error: token recognition error at: '$'"),
            ("1 | 2", 1, 3, "Syntax error: token recognition error at: '| '"),
            ("1 = 2", 1, 3, "Syntax error: token recognition error at: '= '"),
            ("'abc", 1, 1, "Syntax error: token recognition error at: ''abc'"),
            ("'a\nb'", 1, 1, "Syntax error: token recognition error at: ''a\n'"),
            ("\"\\xFh\"", 1, 1, "Syntax error: token recognition error at: '\"\\xFh'"),
            ("'\\>'", 1, 1, "Syntax error: token recognition error at: ''\\>'"),
        ],
    );
}

#[test]
fn reserved_words_and_literals_out_of_range() {
    all_refused(
        &everything(),
        &[
            ("while", 1, 1, "reserved identifier: while"),
            ("namespace == 1", 1, 1, "reserved identifier: namespace"),
            ("if(1)", 1, 1, "reserved identifier: if"),
            ("9223372036854775808", 1, 1, "invalid int literal"),
            ("0xFFFFFFFFFFFFFFFFF", 1, 1, "invalid int literal"),
            ("18446744073709551616u", 1, 1, "invalid uint literal"),
            ("1.99e90000009", 1, 1, "invalid double literal"),
            ("'\\uD800'", 1, 1, "invalid unicode code point"),
            ("b'\\u0041'", 1, 1, "unable to unescape string"),
            ("{}.`a-b`", 1, 4, "unsupported syntax: '`'"),
            ("has(d)", 1, 5, "invalid argument to has() macro"),
            ("has(d[0])", 1, 6, "invalid argument to has() macro"),
            ("1.all(2, 3)", 1, 7, "argument must be a simple name"),
            ("d.filter(a.b, false)", 1, 11, "argument is not an identifier"),
            ("d.map(__result__, 1)", 1, 7, "iteration variable overwrites accumulator variable"),
            ("d.all(i, i, true)", 1, 10, "duplicate variable name: i"),
            ("d.optMap(1, 1)", 1, 10, "optMap() variable name must be a simple identifier"),
            ("cel.bind(1, 1, 1)", 1, 10, "cel.bind() variable names must be simple identifiers"),
        ],
    );
}

#[test]
fn optional_syntax_needs_the_library() {
    let plain = Env::builder().variable("d", Type::Dyn).build();
    all_refused(
        &plain,
        &[
            ("d.?a", 1, 2, "unsupported syntax '.?'"),
            ("d[?0]", 1, 2, "unsupported syntax '[?'"),
            ("[?d]", 1, 2, "unsupported syntax '?'"),
            ("{?'a': d}", 1, 2, "unsupported syntax '?'"),
        ],
    );
}

#[test]
fn type_errors() {
    all_refused(
        &everything(),
        &[
            ("y", 1, 1, "undeclared reference to 'y' (in container '')"),
            ("y.z", 1, 1, "undeclared reference to 'y' (in container '')"),
            ("dyn == int", 1, 1, "undeclared reference to 'dyn' (in container '')"),
            ("nope(1)", 1, 5, "undeclared reference to 'nope' (in container '')"),
            ("x.nope()", 1, 7, "undeclared reference to 'nope' (in container '')"),
            ("1 + 'a'", 1, 3, "found no matching overload for '_+_' applied to '(int, string)'"),
            ("1 == 'a'", 1, 3, "found no matching overload for '_==_' applied to '(int, string)'"),
            ("1 + 1u", 1, 3, "found no matching overload for '_+_' applied to '(int, uint)'"),
            ("!1", 1, 1, "found no matching overload for '!_' applied to '(int)'"),
            ("-'a'", 1, 1, "found no matching overload for '-_' applied to '(string)'"),
            ("1 in 2", 1, 3, "found no matching overload for '@in' applied to '(int, int)'"),
            ("[1]['a']", 1, 4, "found no matching overload for '_[_]' applied to '(list(int), string)'"),
            (
                "{'a': 1}[1]",
                1,
                9,
                "found no matching overload for '_[_]' applied to '(map(string, int), int)'",
            ),
            (
                "'a'.charAt('b')",
                1,
                11,
                "found no matching overload for 'charAt' applied to 'string.(string)'",
            ),
            ("size(1)", 1, 5, "found no matching overload for 'size' applied to '(int)'"),
            ("charAt('a', 1)", 1, 7, "found no matching overload for 'charAt' applied to '(string, int)'"),
            (
                "true ? 1 : 'a'",
                1,
                6,
                "found no matching overload for '_?_:_' applied to '(bool, int, string)'",
            ),
            ("1 ? 1 : 2", 1, 3, "found no matching overload for '_?_:_' applied to '(int, int, int)'"),
            ("1 && true", 1, 1, "expected type 'bool' but found 'int'"),
            ("true || 'a'", 1, 9, "expected type 'bool' but found 'string'"),
            ("x.y", 1, 2, "type 'int' does not support field selection"),
            ("has('a'.b)", 1, 4, "type 'string' does not support field selection"),
            ("[1].all(i, 1)", 1, 12, "expected type 'bool' but found 'int'"),
            ("[1].filter(i, i)", 1, 15, "expected type 'bool' but found 'int'"),
            (
                "x.all(i, true)",
                1,
                1,
                "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
            ),
            ("[1].all(i, j > 0)", 1, 12, "undeclared reference to 'j' (in container '')"),
            ("[?1]", 1, 3, "expected type 'optional_type(int)' but found 'int'"),
            ("{?'a': 1}", 1, 8, "expected type 'optional_type(int)' but found 'int'"),
            (
                "optional.of(1) + 1",
                1,
                16,
                "found no matching overload for '_+_' applied to '(optional_type(int), int)'",
            ),
            (
                "optional.of(1).orValue('a')",
                1,
                23,
                "found no matching overload for 'orValue' applied to 'optional_type(int).(string)'",
            ),
            (
                "timestamp(0) + timestamp(0)",
                1,
                14,
                "found no matching overload for '_+_' applied to '(timestamp, timestamp)'",
            ),
            (
                "duration('1s') * 2",
                1,
                16,
                "found no matching overload for '_*_' applied to '(duration, int)'",
            ),
            ("type(1) + 1", 1, 9, "found no matching overload for '_+_' applied to '(type(int), int)'"),
            (
                "quantity('1') + 1",
                1,
                15,
                "found no matching overload for '_+_' applied to '(kubernetes.Quantity, int)'",
            ),
            ("Nope{}", 1, 5, "undeclared reference to 'Nope' (in container '')"),
            ("int{}", 1, 4, "'int' is not a message type"),
            ("x{}", 1, 2, "'int' is not a type"),
            ("JSONPatch{nope: 1}", 1, 15, "undefined field 'nope'"),
            ("JSONPatch{op: 1}", 1, 13, "expected type of field 'op' is 'string' but provided type is 'int'"),
            ("JSONPatch{}.nope", 1, 12, "undefined field 'nope'"),
            (
                "[[1]].sortBy(e, e)",
                1,
                13,
                "found no matching overload for '@sortByAssociatedKeys' applied to 'list(list(int)).(list(list(int)))'",
            ),
        ],
    );
}

#[test]
fn invalid_literal_arguments() {
    all_refused(
        &everything(),
        &[
            ("[1, 'a']", 1, 5, "expected type 'int' but found 'string'"),
            ("{'a': 1, 'b': 'c'}", 1, 15, "expected type 'int' but found 'string'"),
            ("{'a': 1, 2: 3}", 1, 10, "expected type 'string' but found 'int'"),
            ("[1, null]", 1, 5, "expected type 'int' but found 'null'"),
            ("duration('x')", 1, 10, "invalid duration argument"),
            ("timestamp('x')", 1, 11, "invalid timestamp argument"),
            ("'a'.matches('(')", 1, 13, "invalid matches argument"),
            ("'a'.find('(')", 1, 10, "error parsing regexp: missing closing ): `(`"),
            (
                "'%d'.format(['a'])",
                1,
                14,
                "error during formatting: decimal clause can only be used on integers, was given string",
            ),
            ("'%s'.format([])", 1, 12, "index 0 out of range"),
            (
                "'%s'.format([1, 2])",
                1,
                12,
                "too many arguments supplied to string.format (expected 1, got 2)",
            ),
            (
                "'%z'.format([1])",
                1,
                12,
                "could not parse formatting clause: unrecognized formatting clause \"z\"",
            ),
        ],
    );
    // Arguments of format may be of any types.
    assert!(everything().compile("'%s %d'.format(['a', 1])").is_ok());
}

#[test]
fn errors_show_line_and_column() {
    let env = everything();
    let shown = |expression: &str| env.compile(expression).unwrap_err().to_string();
    assert_eq!(
        shown("x == 1 &&\n  y == 'é' + z"),
        "ERROR: <input>:2:3: undeclared reference to 'y' (in container '')\n |   y == 'é' + z\n | ..^\n\
         ERROR: <input>:2:14: undeclared reference to 'z' (in container '')\n |   y == 'é' + z\n | ........．....^"
    );
    assert_eq!(
        shown("[1, 2, 3].map(var, var * var)"),
        "ERROR: <input>:1:15: reserved identifier: var\n | [1, 2, 3].map(var, var * var)\n | ..............^\n\
         ERROR: <input>:1:15: argument is not an identifier\n | [1, 2, 3].map(var, var * var)\n | ..............^\n\
         ERROR: <input>:1:20: reserved identifier: var\n | [1, 2, 3].map(var, var * var)\n | ...................^\n\
         ERROR: <input>:1:26: reserved identifier: var\n | [1, 2, 3].map(var, var * var)\n | .........................^"
    );
    assert_eq!(
        shown("1 + $"),
        format!(
            "ERROR: <input>:1:5: Syntax error: token recognition error at: '$'\n | 1 + $\n | ....^\n\
             ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting {START}\n | 1 + $\n | .....^"
        )
    );
    assert_eq!(
        shown("1 +\t'a'"),
        "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a'\n | ..^"
    );
}
