//! Costs match Kubernetes, so that the same rules are admitted, refused and interrupted.

mod table;

use orlop_cel::{Activation, Budget, CostEstimate, Env, EvalError, Schema, Type};
use serde_json::{Value as Json, json};

struct Document {
    schema: Schema,
    json: Json,
}

fn document() -> Document {
    let string = json!({"type": "string"});
    let list = |items: &Json| json!({"type": "array", "items": items});
    let integer = json!({"type": "integer"});
    let schema = json!({"type": "object", "properties": {
        "n": integer, "m": integer, "f": {"type": "number"}, "s": string, "t": string, "flag": {"type": "boolean"},
        "bytes": {"type": "string", "format": "byte"}, "span": {"type": "string", "format": "duration"},
        "time": {"type": "string", "format": "date-time"},
        "phase": {"type": "string", "enum": ["Pending", "Available", "Bound", "Released", "Failed"]},
        "short": {"type": "string", "maxLength": 10},
        "ints": list(&integer), "more": list(&integer), "few": {"type": "array", "maxItems": 5, "items": integer},
        "texts": list(&string), "array": list(&integer),
        "map": {"type": "object", "additionalProperties": integer},
        "objects": list(&json!({"type": "object", "properties": {"k": string, "v": string, "v2": string}})),
        "obj": {"type": "object", "properties": {"field": string, "absent": string}},
        "strings": {"type": "object", "additionalProperties": string},
        "any": {"x-kubernetes-int-or-string": true},
    }});
    let json = json!({
        "n": 5, "m": 5, "f": 5.0, "s": "Rook takes K", "t": "Rook takes K", "flag": true, "bytes": "QUI=",
        "span": "1h2m3s", "time": "2011-08-18T19:03:37.010000000+01:00", "phase": "Pending", "short": "abc",
        "ints": [1, 2, 3], "more": [1, 2, 3], "few": [1], "texts": ["a", "b", "c"],
        "array": [1, 1, 2, 2, 3, 3, 4, 5], "map": {"b": 1, "d": 2},
        "objects": [{"k": "a1", "v": "b1"}, {"k": "a2", "v": "b2"}, {"k": "a3", "v": "b3", "v2": "z"}],
        "obj": {"field": "a"}, "strings": {"k": "v"}, "any": "25%",
    });
    Document { schema: Schema::from_openapi("Root", &schema, false).expect("a visible schema"), json }
}

fn env(document: &Document) -> Env {
    Env::kubernetes(34).schema("self", &document.schema).build()
}

fn check_costs(actual: impl Fn(&str) -> Result<u64, String>, rows: &[(&str, u64)]) {
    let failures: Vec<String> = rows
        .iter()
        .map(|(expression, expected)| (expression, expected, actual(expression)))
        .filter(|(_, expected, found)| found.as_ref() != Ok(*expected))
        .map(|(expression, expected, found)| {
            format!("{expression}\n    expected {expected}, found {found:?}")
        })
        .collect();
    table::assert_none(&failures, rows.len());
}

#[test]
fn actual_costs() {
    let document = document();
    let env = env(&document);
    let run = |expression: &str| -> Result<u64, String> {
        let program = env.compile(expression).map_err(|errors| errors.to_string())?;
        let mut budget = Budget::unlimited();
        let activation = Activation::new().json("self", &document.json);
        program.evaluate(&activation, &mut budget).map_err(|error| error.to_string())?;
        Ok(budget.used())
    };
    check_costs(
        run,
        &[
            ("self.n == self.m", 5),
            ("type(self.n) == int", 4),
            ("self.n + 1 == 5 + 1", 5),
            ("5 < int(10.0)", 1),
            ("double(self.n) < self.f", 6),
            ("self.s.startsWith('Rook')", 3),
            ("!self.s.startsWith('knight')", 4),
            ("self.s.matches('^[^0-9]*$')", 8),
            ("!self.s.matches('^[0-9]*$')", 7),
            ("size(self.s) == 12", 4),
            ("self.s.charAt(3) == 'k'", 4),
            ("self.s.indexOf('o') == 1", 4),
            ("self.s.replace(' ', 'x') == 'RookxtakesxK'", 7),
            ("self.s.split(' ') == ['Rook', 'takes', 'K']", 6),
            ("self.s.substring(5) == 'takes K'", 5),
            ("self.s.substring(4, 10).trim() == 'takes'", 6),
            ("self.s.upperAscii() == 'ROOK TAKES K'", 6),
            ("self.s.lowerAscii() == self.s.lowerAscii()", 10),
            ("'%o %o %o'.format([7, 8, 9]) == '7 10 11'", 2),
            ("'%b %b %b'.format([7, 8, 9]) == '111 1000 1001'", 3),
            ("self.bytes == b'AB'", 3),
            ("self.time.getHours() == 1", 4),
            ("1 in self.ints", 5),
            ("self.more[0] in self.ints", 8),
            ("self.phase in ['Pending', 'Bound']", 2),
            ("!(0 in self.ints)", 6),
            ("self.ints + self.more == [1, 2, 3, 1, 2, 3]", 6),
            ("self.ints + [4, 5] == [1, 2, 3, 4, 5]", 4),
            ("has(self.ints)", 1),
            ("has(self.ints) && has(self.more)", 2),
            ("sets.contains(self.texts, ['a'])", 6),
            ("sets.equivalent(self.texts, ['a', 'b', 'c'])", 21),
            ("!('a' in self.map)", 4),
            ("!has(self.map.a)", 3),
            ("self.map.all(k, self.map[k] > 0)", 17),
            ("!self.map.exists(k, self.map[k] == 3)", 20),
            ("self.map.exists_one(k, self.map[k] == 2)", 14),
            ("size(self.map.filter(k, self.map[k] > 1)) == 1", 26),
            ("self.map.all(k, v, v > 0)", 13),
            ("!self.map.exists(k, v, v == 3)", 16),
            ("self.map.existsOne(k, v, v == 2)", 10),
            ("self.map.transformMap(k, v, v > 1, v + 1).size() == 1", 14),
            ("self.map.transformMap(k, v, v + 1).size() == 2", 15),
            ("self.map.transformMapEntry(k, v, v > 1, {k + '2': v + 1}).size() == 1", 45),
            ("self.map.transformMapEntry(k, v, {k + '2': v + 1}).size() == 2", 77),
            ("has(self.objects[0].v)", 3),
            ("self.objects.all(m, m.k.startsWith('a'))", 21),
            ("self.objects.all(m, !has(m.v2) || m.v2 == 'z')", 21),
            ("self.objects.exists(m, m.k.endsWith('1'))", 13),
            ("self.objects.exists_one(m, m.k == 'a3')", 15),
            ("!self.objects.exists(m, m.v == 'x')", 25),
            ("size(self.objects.filter(m, m.k == 'a1')) == 1", 27),
            ("self.objects.map(m, m.v).exists(v, v == 'b1')", 55),
            ("self.objects.exists(m, has(m.v2) && m.v2 == 'z')", 21),
            ("!self.objects.all(m, has(m.v2) && m.v2 != 'z')", 10),
            ("self.objects.map(m, has(m.v2) && m.v2 == 'z', m.v2).size() == 1", 25),
            ("self.objects.exists(m, m.v2 == 'z')", 24),
            ("!self.objects.all(m, m.v2 != 'z')", 22),
            ("self.objects.transformList(i, m, m.v).size() == 3", 47),
            ("2 in self.array", 10),
            ("self.array.all(e, e > 0)", 43),
            ("self.array.exists(e, e > 2)", 36),
            ("self.array.exists_one(e, e > 4)", 22),
            ("!self.array.exists_one(e, e == 2)", 25),
            ("size(self.array.filter(e, e%2 == 0)) == 3", 68),
            ("self.array.map(e, e * 20).filter(e, e > 50).exists(e, e == 60)", 194),
            ("self.array.transformList(i, e, e > 2, e * 2).size() > 0", 77),
            ("self.array.transformList(i, e, e * 2).size() > 0", 117),
            ("type(self.any) == string && self.any == '25%'", 7),
            ("optional.of('a') != optional.of('b')", 3),
            ("optional.of('a').or(optional.of('a')).hasValue()", 2),
            ("optional.none().or(optional.of('a')).hasValue()", 3),
            ("optional.of('a').optMap(v, v == 'value').hasValue()", 8),
            ("self.obj.?field == optional.of('a')", 5),
            ("self.obj.?absent == optional.none()", 4),
            ("self.obj.?field.orValue('v') == 'a'", 4),
            ("self.strings[?'k'] == optional.of('v')", 5),
            ("isQuantity('200M')", 1),
            ("quantity('200M') == quantity('0.2G') && quantity('0.2G') == quantity('200M')", 6),
            ("quantity('50k').add(quantity('20')) == quantity('50.02k')", 5),
            ("lists.range(4) == [0, 1, 2, 3]", 16),
            ("[5, 1, 2, 3].reverse() == [3, 2, 1, 5]", 16),
            ("[1, 2, 3, 4].slice(1, 3) == [2, 3]", 14),
            ("dyn([1, 2, 3, 4]).flatten() == [1, 2, 3, 4]", 16),
            ("[4, 3, 2, 1].sort() == [1, 2, 3, 4]", 44),
            ("['d', 'a', 'b', 'c'].sort() == ['a', 'b', 'c', 'd']", 45),
            ("[].sortBy(e, e) == []", 14),
            ("['a'].sortBy(e, e) == ['a']", 30),
            ("[-3, 1, -5, -2, 4].sortBy(e, -(e * e)) == [-5, 4, -3, -2, 1]", 145),
            ("lists.range(3).sortBy(e, -e) == [2, 1, 0]", 89),
            ("['a', 'c', 'b', 'first'].sortBy(e, e == 'first' ? '' : e) == ['first', 'a', 'b', 'c']", 104),
            ("[-2, 5, -2, 1, 1, 5, -2, 1].distinct() == [-2, 5, 1]", 140),
            ("[[1], [1], [2]].distinct() == [[1], [2]]", 30),
            ("ip('192.168.0.1').isLoopback()", 3),
            ("ip('192.168.0.1') == ip('192.168.0.1')", 5),
            ("ip.isCanonical('2001:db8::abcd')", 3),
            ("cidr('192.168.0.0/16').containsIP(ip('192.0.0.1'))", 4),
            ("cidr('192.168.0.0/16').containsCIDR(cidr('192.0.0.0/30'))", 7),
            ("url('https://kubernetes.io/').getHost() == 'a'", 5),
        ],
    );
}

#[test]
fn estimates_follow_the_schema() {
    let document = document();
    let env = env(&document);
    let estimate = |expression: &str| -> Result<u64, String> {
        env.estimate(expression).map(|cost| cost.max).map_err(|errors| errors.to_string())
    };
    check_costs(
        estimate,
        &[
            ("self.s.startsWith('Rook')", 3),
            ("self.s.matches('^[^0-9]*$')", 943721),
            ("!self.s.matches('^[0-9]*$')", 629149),
            ("type(self.s) == string", 4),
            ("size(self.s) == 12", 4),
            ("self.s.charAt(3) == 'k'", 4),
            ("self.s.indexOf('o') == 1", 314576),
            ("self.s.replace(' ', 'x') == 'RookxtakesxKK'", 629150),
            ("self.s.split(' ') == ['Rook', 'takes', 'K']", 629159),
            ("self.s.substring(5) == 'takes K'", 314576),
            ("self.s.substring(4, 10).trim() == 'takes'", 629149),
            ("self.s.lowerAscii() == self.t.lowerAscii()", 943723),
            ("self.s == '''l1\nl2'''", 3),
            ("self.bytes == b'AB'", 3),
            ("self.flag != self.flag", 4),
            ("self.span == duration('1h2m') + duration('3s4ms')", 6),
            ("self.time.getDate('01:00') == 18", 4),
            ("self.phase == 'Pending'", 3),
            ("self.phase in ['Pending', 'Available']", 14),
            ("self.short.matches('abcd')", 7),
            ("int(self.f) == self.n", 5),
            ("bytes(self.s) == self.bytes", 629150),
            ("string(self.n) == self.s", 314578),
            ("string(self.bytes) == self.s", 629150),
            ("duration(self.s) == self.span", 6),
            ("1 in self.ints", 1572865),
            ("self.more[0] in self.ints", 1572868),
            ("self.few.all(e, e > 0)", 28),
            ("self.ints + self.more == [1, 2, 3, 1, 2, 3]", 16),
            ("self.ints + [4, 5] == [1, 2, 3, 4, 5]", 24),
            ("has(self.ints) && has(self.more)", 2),
            ("self.ints.all(k, size(self.ints) > 0)", 11010044),
            ("self.ints.exists_one(k, self.ints == [2])", 23592949),
            ("size(self.ints.filter(k, size(self.ints) > 1)) == 1", 26738686),
            ("self.texts == ['c', 'b', 'a']", 13),
            ("self.texts.all(k, size(self.texts) > 0)", 7340028),
            ("self.texts.exists_one(k, self.texts == ['a'])", 15728629),
            ("self.map.all(k, self.map[k] > 0)", 3595115),
            ("self.map.exists_one(k, self.map[k] == 2)", 2696338),
            ("size(self.map.filter(k, self.map[k] > 1)) == 1", 8089017),
            ("self.objects.all(m, m.k.startsWith('a'))", 6291453),
            ("self.objects.all(m, !has(m.v2) || m.v2 == 'z')", 8388603),
            ("self.objects.exists(m, m.k.endsWith('1'))", 7340028),
            ("self.objects.exists_one(m, m.k == 'a3')", 5242879),
            ("size(self.objects.filter(m, m.k == 'a1')) == 1", 16777215),
            ("self.objects.exists(m, m.k == 'a1' && m.v == 'b1')", 10485753),
            ("self.objects.map(m, m.v).exists(v, v == 'b1')", 19922939),
            ("self.objects.map(m, has(m.v2) && m.v2 == 'z', m.v2).size() == 1", 18874365),
            ("self.objects.filter(m, has(m.v2) && m.v2 == 'z').map(m, m.v2).size() == 1", 32505851),
            ("self.array.all(e, e > 0)", 7864318),
            ("self.array.exists(e, e > 2)", 9437181),
            ("self.array.exists_one(e, e > 4)", 6291456),
            ("self.array.exists_one(e, e == 2)", 4718593),
            ("size(self.array.filter(e, e%2 == 0)) == 3", 25165823),
            ("self.array.map(e, e * 20).filter(e, e > 50).exists(e, e == 60)", 53477367),
            ("optional.of('a') != optional.of('b')", 1844674407370955266),
            ("optional.of('a').or(optional.of('a')).hasValue()", 4),
            ("optional.of('a').optMap(v, v == 'value').hasValue()", 18),
            ("optional.of([1, 2, 3, 4, 5]).optMap(v, v.size()).hasValue()", 38),
            ("self.texts[?0].optMap(v, v == 'a').hasValue()", 22),
            ("self.obj.?field == optional.of('a')", 1844674407370955268),
            ("self.obj.?field.orValue('v') == 'a'", 5),
            ("isQuantity(self.s)", 314575),
            ("quantity(self.s).isLessThan(quantity(self.t))", 629151),
            ("quantity('50k').add(quantity('20')) == quantity('50.02k')", 5),
        ],
    );
}

#[test]
fn estimates_without_a_schema() {
    let env = Env::kubernetes(34)
        .variable("a", Type::Bool)
        .variable("b", Type::Bool)
        .variable("items", Type::list(Type::Int))
        .build();
    let range = |min, max| CostEstimate { min, max };
    for (expression, expected) in [
        ("'Hello World!'", range(0, 0)),
        ("a", range(1, 1)),
        ("[1, 2, 3]", range(10, 10)),
        ("{'a': 1, 'b': 2}", range(30, 30)),
        ("[1, 2, 3].all(x, true)", range(20, 20)),
        ("'123'.matches('[0-9]')", range(2, 2)),
        ("true || false", range(0, 0)),
        ("a || b || a || b", range(1, 4)),
        ("a && b && a && b", range(1, 4)),
        ("2 in [1, 2, 3]", range(13, 13)),
        ("true ? 1 : 2", range(0, 0)),
        ("string(1)", range(1, 1)),
        ("[1,2,3,4,5].filter(x, x % 2 == 0)", range(41, 101)),
        ("[1,2,3,4,5].map(x, x)", range(86, 86)),
        ("[1,2,3,4,5].map(x, x).filter(x, x % 2 == 0)", range(117, 177)),
        ("[1,2,3,4,5].map(x, x).exists(x, x == 5) == true", range(108, 118)),
        ("[1,2,3,4,5].map(x, x)[4]", range(87, 87)),
        ("[[1,2],[1,2],[1,2],[1,2],[1,2]][4]", range(61, 61)),
        ("{'a': [1,2], 'b': [1,2]}.b", range(51, 51)),
        ("[[1, 1], [2, 2], [3, 3], [4, 4], [5, 5]].all(y, y.all(y, y == 1))", range(76, 136)),
        ("[1,2,3].all(i, i in [1,2,3].map(j, j + j))", range(20, 230)),
        ("['hello', 'hi'][0] != ['hello', 'bye'][1]", range(23, 23)),
        ("((5 != 6) == (1 == 2)) == ((3 <= 4) == (9 != 9))", range(7, 7)),
        ("items.all(i, true)", range(2, u64::MAX)),
    ] {
        assert_eq!(
            env.estimate(expression).map_err(|errors| errors.to_string()),
            Ok(expected),
            "{expression}"
        );
    }
}

#[test]
fn exhausted_budget_is_never_absorbed() {
    let env = table::everything();
    for expression in [
        "[1, 2, 3].all(i, i > 0)",
        "[1, 2, 3].all(i, i > 0) || true",
        "true && [1, 2, 3].all(i, i > 0)",
        "lists.range(1000).exists(i, lists.range(1000).exists(j, i * j < 0)) || true",
        "'a'.matches('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz') || 'b' == 'b'",
    ] {
        let program = env.compile(expression).unwrap();
        let activation = Activation::new();
        let mut budget = Budget::new(10);
        let result = program.evaluate(&activation, &mut budget);
        assert_eq!(result.map(|_| ()), Err(EvalError::CostLimitExceeded), "{expression}");
    }
    assert_eq!(EvalError::CostLimitExceeded.to_string(), "operation cancelled: actual cost limit exceeded");
}

#[test]
fn budget_is_shared_by_evaluations() {
    let env = table::everything();
    let program = env.compile("1 + 1 == 2").unwrap();
    let activation = Activation::new();
    let mut budget = Budget::new(5);
    for expected in [2, 4] {
        assert!(program.evaluate(&activation, &mut budget).is_ok());
        assert_eq!(budget.used(), expected);
    }
    assert_eq!(program.evaluate(&activation, &mut budget).map(|_| ()), Err(EvalError::CostLimitExceeded));
}

#[test]
fn actual_cost_is_within_the_estimate() {
    let document = document();
    let env = env(&document);
    for expression in [
        "self.ints.all(e, e > 0) && self.texts.exists(t, t == 'c')",
        "self.objects.map(m, m.k + m.v).size() == 3",
        "self.map.transformMap(k, v, v + 1).size() == 2",
        "self.s.split(' ').join('-').size() > 3",
        "self.s.matches('^R') ? self.n > 3 : self.m > 3",
    ] {
        let program = env.compile(expression).unwrap();
        let mut budget = Budget::unlimited();
        let activation = Activation::new().json("self", &document.json);
        program.evaluate(&activation, &mut budget).unwrap();
        assert!(
            budget.used() <= program.estimate().max,
            "{expression}: {} > {:?}",
            budget.used(),
            program.estimate()
        );
    }
}

#[test]
fn cardinality_is_derived_from_minimal_size() {
    let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}});
    let schema = Schema::from_openapi("Root", &schema, false).unwrap();
    // {"a":""} and a comma: 2 for the braces, 1 for the name, 4 around it, 2 for the empty string.
    assert_eq!(schema.cardinality_max(), 3 * 1024 * 1024 / (2 + 1 + 4 + 2 + 1));
}
