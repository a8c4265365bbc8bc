//! Edge cases with the results of Kubernetes' own evaluator (1.37).

mod table;

use orlop_cel::{Activation, Budget, Env, Schema};
use serde_json::json;

#[test]
fn errors_match_kubernetes() {
    table::all_fail(
        &Env::kubernetes(37).build(),
        &[
            (
                "ip('1.2.3')",
                r#"IP Address "1.2.3" parse error during conversion from string: ParseAddr("1.2.3"): IPv4 address too short"#,
            ),
            (
                "ip('1.2.3.4.5')",
                r#"IP Address "1.2.3.4.5" parse error during conversion from string: ParseAddr("1.2.3.4.5"): IPv4 address too long"#,
            ),
            (
                "ip('256.1.1.1')",
                r#"IP Address "256.1.1.1" parse error during conversion from string: ParseAddr("256.1.1.1"): IPv4 field has value >255"#,
            ),
            (
                "ip('01.2.3.4')",
                r#"IP Address "01.2.3.4" parse error during conversion from string: ParseAddr("01.2.3.4"): IPv4 field has octet with leading zero"#,
            ),
            (
                "ip('1..2.3')",
                r#"IP Address "1..2.3" parse error during conversion from string: ParseAddr("1..2.3"): IPv4 field must have at least one digit (at ".2.3")"#,
            ),
            (
                "ip('1.2.3.a')",
                r#"IP Address "1.2.3.a" parse error during conversion from string: ParseAddr("1.2.3.a"): unexpected character (at "a")"#,
            ),
            (
                "ip('1:2:3:4:5:6:7')",
                r#"IP Address "1:2:3:4:5:6:7" parse error during conversion from string: ParseAddr("1:2:3:4:5:6:7"): address string too short"#,
            ),
            (
                "ip('1:2:3:4:5:6:7:8:9')",
                r#"IP Address "1:2:3:4:5:6:7:8:9" parse error during conversion from string: ParseAddr("1:2:3:4:5:6:7:8:9"): trailing garbage after address (at "9")"#,
            ),
            (
                "ip('::1::2')",
                r#"IP Address "::1::2" parse error during conversion from string: ParseAddr("::1::2"): multiple :: in address (at ":2")"#,
            ),
            (
                "ip('12345::')",
                r#"IP Address "12345::" parse error during conversion from string: ParseAddr("12345::"): each group must have 4 or less digits (at "12345::")"#,
            ),
            (
                "ip('1:2:3:4:5:6:7:1.2.3.4')",
                r#"IP Address "1:2:3:4:5:6:7:1.2.3.4" parse error during conversion from string: ParseAddr("1:2:3:4:5:6:7:1.2.3.4"): embedded IPv4 address must replace the final 2 fields of the address (at "1.2.3.4")"#,
            ),
            (
                "ip('fe80::1%')",
                r#"IP Address "fe80::1%" parse error during conversion from string: ParseAddr("fe80::1%"): zone must be a non-empty string"#,
            ),
            (
                "ip('%eth0')",
                r#"IP Address "%eth0" parse error during conversion from string: ParseAddr("%eth0"): missing IPv6 address"#,
            ),
            (
                "ip('g::')",
                r#"IP Address "g::" parse error during conversion from string: ParseAddr("g::"): each colon-separated field must have at least one digit (at "g::")"#,
            ),
            (
                "ip('1:')",
                r#"IP Address "1:" parse error during conversion from string: ParseAddr("1:"): colon must be followed by more characters (at ":")"#,
            ),
            (
                "ip('1::2:3:4:5:6:7:8')",
                r#"IP Address "1::2:3:4:5:6:7:8" parse error during conversion from string: ParseAddr("1::2:3:4:5:6:7:8"): the :: must expand to at least one field of zeros"#,
            ),
            (
                "cidr('10.0.0.0/')",
                r#"network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("10.0.0.0/"): bad bits after slash: """#,
            ),
            (
                "cidr('10.0.0.0/33')",
                r#"network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("10.0.0.0/33"): prefix length out of range"#,
            ),
            (
                "cidr('fe80::1%e/64')",
                r#"network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("fe80::1%e/64"): IPv6 zones cannot be present in a prefix"#,
            ),
            (
                "cidr('1.2.3/8')",
                r#"network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("1.2.3/8"): ParseAddr("1.2.3"): IPv4 address too short"#,
            ),
            ("cidr('10.0.0.0/8').containsIP('a')", "no such overload"),
            ("quantity('--1')", "unable to parse quantity's suffix"),
            (
                "quantity('1e3k')",
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            ("quantity('1Pi').asInteger()", "cannot convert value to integer"),
            ("semver('1-x.2.3')", r#"Invalid character(s) found in major number "1-x""#),
            ("semver('1..3')", r#"strconv.ParseUint: parsing "": invalid syntax"#),
            (
                "semver('1.2.3-99999999999999999999')",
                r#"strconv.ParseUint: parsing "99999999999999999999": value out of range"#,
            ),
            ("semver(' 1.2', true)", r#"Invalid character(s) found in major number "0 1""#),
            ("semver('a01', true)", r#"Invalid character(s) found in major number "0a01""#),
            (
                "url('http://h#frag')",
                r##"URL parse error during conversion from string: parse "http://h#frag": invalid character "#" in host name"##,
            ),
            (
                "url('http://h/#%zz')",
                r#"URL parse error during conversion from string: parse "http://h/#%zz": invalid URL escape "%zz""#,
            ),
            (
                "url('http://h%41/')",
                r#"URL parse error during conversion from string: parse "http://h%41/": invalid URL escape "%41""#,
            ),
            ("dyn(1).all(i, v, true)", "unsupported comprehension range type: types.Int"),
            ("dyn('a').map(x, x)", "got 'types.String', expected iterable type"),
        ],
    );
}

#[test]
fn quirks_match_kubernetes() {
    table::all_true(
        &Env::kubernetes(37).build(),
        &[
            "quantity('1Ti').isInteger() && !quantity('1Pi').isInteger() && !quantity('100Ti').isInteger()",
            "quantity('100m').add(5).asApproximateFloat() == 5.1000000000000005",
            "quantity('.') == quantity('0')",
            "isURL('*') && !isURL('http://h#frag') && url('*').getEscapedPath() == '*'",
            "url('//host/path').getHost() == 'host'",
            "url('http://h?') != url('http://h')",
            "!isSemver(' 1.0.0', true) && !isSemver('1.0.0 ', true)",
            "[0.0/0.0, 1.0].isSorted() && [2.0, 0.0/0.0].min() == 2.0",
            "[dyn(1), dyn('a')].isSorted()",
            "format.dns1123LabelPrefix().validate('a_-') == optional.none()",
            "format.datetime().validate('2020-01-01t00:00:00x5z') == optional.none()",
            "format.qualifiedName().validate('a b').value()[0].startsWith('name part must consist')",
            "format.qualifiedName().validate('a/b/c').value()[0].startsWith('a valid label key must')",
            "size([0.0/0.0, 1.0].sort()) == 2",
        ],
    );
}

#[test]
fn costs_match_kubernetes() {
    let schema = json!({"type": "object", "properties": {"s": {"type": "string"}, "short": {"type": "string", "maxLength": 10}, "few": {"type": "array", "maxItems": 5, "items": {"type": "integer"}}, "map": {"type": "object", "additionalProperties": {"type": "integer"}}, "strings": {"type": "object", "maxProperties": 6, "additionalProperties": {"type": "string", "maxLength": 7}}}});
    let document = json!({"s": "Rook", "short": "abc", "few": [1], "map": {"b": 1}, "strings": {"k": "v"}});
    let schema = Schema::from_openapi("Root", &schema, false).expect("a visible schema");
    let env = Env::kubernetes(37).schema("self", &schema).build();
    let mut failures = Vec::new();
    // The least and the most it can cost, and what it did.
    let rows = [
        ("ip('1.2.3.4') != ip('1.2.3.4')", 3_u64, 1844674407370955266_u64, Some(3_u64)),
        ("format.uri() == format.uri()", 3_u64, 9_u64, Some(3_u64)),
        ("format.date().validate('2020-01-01').hasValue()", 34_u64, 34_u64, Some(38_u64)),
        ("url('https://a') == url('https://abcdefghijklmnop')", 5_u64, 7_u64, Some(5_u64)),
        ("self.short.split('b', -1).all(x, x != '')", 3_u64, 18446744073709551615_u64, Some(12_u64)),
        ("self.short.split('b')[0].contains(self.s)", 5_u64, 13_u64, Some(8_u64)),
        ("self.few.slice(1, 0).size() == 0", 18446744073709551615_u64, 18446744073709551615_u64, None),
        ("self.few.slice(0, -1).size() == 0", 15_u64, 15_u64, None),
        ("self.few.reverse()[0] == 1", 14_u64, 19_u64, Some(17_u64)),
        ("{'a': self.s}.a == 'hello'", 33_u64, 33_u64, Some(35_u64)),
        ("[self.s][0] == self.s", 16_u64, 314588_u64, Some(17_u64)),
        ("self.few.sortBy(x, -x).map(x, x * 2).size() == 1", 49_u64, 519_u64, Some(49_u64)),
        ("self.strings.includes('v')", 2_u64, 26_u64, Some(2_u64)),
        ("self.s.includes('v')", 2_u64, 3145728_u64, Some(2_u64)),
        ("self.map.includes(1)", 2_u64, 449391_u64, Some(3_u64)),
        ("self.few.map(x, x)[0] == 1", 14_u64, 79_u64, Some(19_u64)),
        ("{'a': 1}.?a.hasValue()", 32_u64, 32_u64, Some(3_u64)),
        ("dyn(self.few)[0] == 1", 4_u64, 4_u64, Some(6_u64)),
    ];
    for (row, min, max, cost) in rows {
        let program = env.compile(row).expect(row);
        let estimate = program.estimate();
        let mut budget = Budget::unlimited();
        let result = program.evaluate(&Activation::new().json("self", &document), &mut budget);
        let used = result.is_ok().then(|| budget.used());
        if (estimate.min, estimate.max, used) != (min, max, cost) {
            failures.push(format!("{row}: {estimate:?}, {used:?}; expected {min}..{max}, {cost:?}"));
        }
    }
    table::assert_none(&failures, rows.len());
}
