//! Expressions over JSON with schemas: what is visible, how it is read, how it compares.

mod table;

use orlop_cel::{Activation, Budget, Env, ListType, Schema, SchemaSpec, Type, Value};
use serde_json::{Value as Json, json};

/// Evaluates `expression` with `self` bound to `document`.
fn evaluate(schema: &Json, is_resource: bool, document: &Json, expression: &str) -> Result<Json, String> {
    let schema = Schema::from_openapi("Root", schema, is_resource).expect("schema is visible");
    let env = Env::kubernetes(37).schema("self", &schema).schema("oldSelf", &schema).build();
    let program = env.compile(expression).map_err(|errors| errors.issues()[0].message.clone())?;
    let activation = Activation::new().json("self", document).json("oldSelf", document);
    let value = program.evaluate(&activation, &mut Budget::unlimited()).map_err(|error| error.to_string())?;
    value.to_json().map_err(|error| error.to_string())
}

#[track_caller]
fn holds(schema: &Json, document: &Json, expressions: &[&str]) {
    for expression in expressions {
        assert_eq!(evaluate(schema, false, document, expression), Ok(json!(true)), "{expression}");
    }
}

#[track_caller]
fn refuses(schema: &Json, document: &Json, rows: &[(&str, &str)]) {
    for (expression, message) in rows {
        assert_eq!(evaluate(schema, false, document, expression), Err((*message).to_owned()), "{expression}");
    }
}

#[test]
fn scalars_are_typed_by_type_and_format() {
    let schema = json!({"type": "object", "properties": {
        "int": {"type": "integer"}, "num": {"type": "number"}, "str": {"type": "string"}, "bool": {"type": "boolean"},
        "time": {"type": "string", "format": "date-time"}, "date": {"type": "string", "format": "date"},
        "span": {"type": "string", "format": "duration"}, "bytes": {"type": "string", "format": "byte"},
        "other": {"type": "string", "format": "ipv4"}, "any": {"x-kubernetes-int-or-string": true},
    }});
    let document = json!({
        "int": 5, "num": 5, "str": "a", "bool": true, "time": "2020-01-01T00:00:00Z", "date": "2020-01-01",
        "span": "1h", "bytes": "aGVsbG8=", "other": "1.2.3.4", "any": "25%",
    });
    holds(
        &schema,
        &document,
        &[
            "type(self.int) == int && self.int == 5",
            "type(self.num) == double && self.num == 5.0",
            "type(self.str) == string && type(self.bool) == bool && self.bool",
            "self.time == timestamp('2020-01-01T00:00:00Z') && self.date == self.time",
            "self.span == duration('60m') && self.bytes == b'hello' && self.other == '1.2.3.4'",
            "type(self.any) == string && self.any == '25%'",
            "type(self.any) == int ? self.any < 5 : self.any.endsWith('%')",
        ],
    );
    refuses(
        &schema,
        &document,
        &[
            ("self.int + 'a' == 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
            ("self.time == 'a'", "found no matching overload for '_==_' applied to '(timestamp, string)'"),
            ("self.nope == 1", "undefined field 'nope'"),
            ("self + 1 == 1", "found no matching overload for '_+_' applied to '(Root, int)'"),
        ],
    );
    let wrong = json!({
        "int": "a", "num": "a", "str": 1, "bool": 1, "time": "x", "date": "x", "span": "x", "bytes": "!", "any": true,
    });
    refuses(
        &schema,
        &wrong,
        &[
            ("self.int == 1", "invalid data, expected int, got string"),
            ("self.num == 1.0", "invalid data, expected float, got string"),
            ("self.str == 'a'", "invalid data, expected string, got int64"),
            ("self.bool", "invalid data, expected bool, got int64"),
            ("self.time == timestamp(0)", "Invalid date-time formatted string x: cannot parse"),
            ("self.date == timestamp(0)", "Invalid date formatted string x: cannot parse"),
            ("self.span == duration('1s')", "Invalid duration x: unable to parse as duration"),
            ("self.bytes == b''", "Invalid byte formatted string !: illegal base64 data"),
            ("self.any == 1", "invalid data, expected XIntOrString value to be either a string or integer"),
        ],
    );
}

#[test]
fn objects_maps_and_lists() {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    }});
    let document = json!({
        "spec": {"a": 1}, "labels": {"app": "x", "a/b": "y"}, "items": [{"n": 1}, {"n": 2}], "matrix": [[1], [2, 3]],
    });
    holds(
        &schema,
        &document,
        &[
            "has(self.spec) && has(self.spec.a) && !has(self.spec.b)",
            "self.spec == self.spec && self == oldSelf",
            "self.labels.app == 'x' && self.labels['a/b'] == 'y' && 'app' in self.labels && !('z' in self.labels)",
            "has(self.labels.app) && !has(self.labels.z) && self.labels.size() == 2",
            "self.labels.all(k, self.labels[k].size() == 1) && self.labels.exists(k, v, k == 'a/b' && v == 'y')",
            "self.items.map(i, i.n) == [1, 2] && self.items[1].n == 2 && self.items.exists_one(i, i.n == 2)",
            "self.items == self.items && self.items[0] != self.items[1]",
            "self.matrix[1][1] == 3 && self.matrix.all(row, row.all(n, n > 0)) && [2, 3] in self.matrix",
            "self.matrix.map(row, row.sum()) == [1, 5]",
            "self.?spec.?b.orValue(7) == 7 && self.spec.?a.hasValue()",
            "self.labels == {'app': 'x', 'a/b': 'y'}",
        ],
    );
    refuses(
        &schema,
        &document,
        &[
            ("self.spec.b == 1", "no such key: b"),
            ("self.labels.z == ''", "no such key: z"),
            ("self.items[5].n == 1", "index out of bounds: 5"),
            ("self.spec.c == 1", "undefined field 'c'"),
            ("self.items.all(i, i.m > 0)", "undefined field 'm'"),
            ("self.labels['a'] == 1", "found no matching overload for '_==_' applied to '(string, int)'"),
            (
                "self.spec.all(k, true)",
                "expression of type 'Root.spec' cannot be range of a comprehension (must be list, map, or dynamic)",
            ),
            ("size(self.spec) == 1", "found no matching overload for 'size' applied to '(Root.spec)'"),
        ],
    );
    let wrong = json!({"spec": [], "items": {}});
    refuses(
        &schema,
        &wrong,
        &[
            ("self.spec.a == 1", "invalid data, expected a map for the provided schema with type=object"),
            (
                "self.items.size() == 1",
                "invalid data, expected an array for the provided schema with type=array",
            ),
        ],
    );
}

#[test]
fn null_fields_are_absent_and_null_items_need_nullable() {
    let schema = json!({"type": "object", "properties": {
        "field": {"type": "string", "nullable": true},
        "plain": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string", "nullable": true}},
        "strict": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
    }});
    let document =
        json!({"field": null, "plain": null, "list": [null, "a"], "strict": [null], "map": {"k": null}});
    holds(
        &schema,
        &document,
        &[
            "!has(self.field) && !has(self.plain)",
            "dyn(self.list[0]) == null && self.list[1] == 'a'",
            "has(self.map.k) && dyn(self.map.k) == null",
        ],
    );
    refuses(
        &schema,
        &document,
        &[
            ("self.field == 'a'", "no such key: field"),
            ("self.strict[0] == 'a'", "invalid data, got null for schema with nullable=false"),
        ],
    );
}

#[test]
fn names_are_escaped() {
    let schema = json!({"type": "object", "properties": {
        "a.b": {"type": "integer"}, "a-b": {"type": "integer"}, "a/b": {"type": "integer"},
        "namespace": {"type": "integer"}, "x__y": {"type": "integer"}, "é": {"type": "integer"},
    }});
    let document = json!({"a.b": 1, "a-b": 2, "a/b": 3, "namespace": 4, "x__y": 5, "é": 6});
    holds(
        &schema,
        &document,
        &[
            "self.a__dot__b == 1 && self.a__dash__b == 2 && self.a__slash__b == 3",
            "self.__namespace__ == 4 && self.x__underscores__y == 5 && has(self.__namespace__)",
        ],
    );
    refuses(&schema, &document, &[("self.namespace == 4", "undefined field 'namespace'")]);
}

#[test]
fn resources_expose_type_and_name() {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                         "x-kubernetes-preserve-unknown-fields": true},
        }},
        "metadata": {"type": "object"},
    }});
    let document = json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "w", "labels": {}},
        "spec": {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {}}}});
    for (expression, expected) in [
        ("self.kind == 'Widget' && self.apiVersion == 'v1' && self.metadata.name == 'w'", Ok(json!(true))),
        ("has(self.metadata.generateName)", Ok(json!(false))),
        (
            "self.spec.template.kind == 'Pod' && self.spec.template.metadata.generateName == 'p-'",
            Ok(json!(true)),
        ),
        ("self.metadata.labels == {}", Err("undefined field 'labels'".to_owned())),
        ("has(self.spec.template.spec)", Err("undefined field 'spec'".to_owned())),
    ] {
        assert_eq!(evaluate(&schema, true, &document, expression), expected, "{expression}");
    }
    assert_eq!(
        evaluate(&schema, false, &document, "self.kind == 'Widget'"),
        Err("undefined field 'kind'".to_owned())
    );
}

#[test]
fn undeclared_fields_are_invisible_but_affect_equality() {
    let schema = json!({"type": "object", "properties": {
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                 "properties": {"known": {"type": "integer"}}},
        "other": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                  "properties": {"known": {"type": "integer"}}},
        "frees": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}},
    }});
    let document =
        json!({"free": 1, "open": {"known": 1, "u": 2}, "other": {"known": 1, "u": 3}, "frees": [1]});
    holds(&schema, &document, &["self.open.known == 1", "self.open == self.open", "self == oldSelf"]);
    refuses(
        &schema,
        &document,
        &[
            ("self.free == 1", "undefined field 'free'"),
            ("self.frees.size() == 1", "undefined field 'frees'"),
            ("self.open.u == 2", "undefined field 'u'"),
        ],
    );
    assert_eq!(evaluate(&schema, false, &document, "dyn(self.open) == dyn(self.other)"), Ok(json!(false)));
}

#[test]
fn sets_and_list_maps_compare_without_order_and_merge() {
    let schema = json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "set2": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "list": {"type": "array", "items": {"type": "string"}},
        "list2": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
        "map2": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
    }});
    let document = json!({
        "set": ["a", "b"], "set2": ["b", "a"], "list": ["a", "b"], "list2": ["b", "a"],
        "map": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "map2": [{"k": "b", "v": 2}, {"k": "a", "v": 1}],
    });
    holds(
        &schema,
        &document,
        &[
            "self.set == self.set2 && self.set == ['b', 'a'] && self.set != ['a'] && self.set != ['a', 'c']",
            "self.list != self.list2",
            "dyn(self.map) == dyn(self.map2) && !(dyn(self.map) != dyn(self.map2))",
            "self.set + ['c', 'a'] == ['a', 'b', 'c']",
            "self.set + self.set2 == ['a', 'b']",
            "self.list + ['a'] == ['a', 'b', 'a']",
            "(dyn(self.map) + dyn(self.map2)).size() == 2",
            "(dyn(self.map) + [dyn(self.map2[0])]).map(e, e.v) == [1, 2]",
        ],
    );
}

#[test]
fn references_resolve_and_cycles_are_cut() {
    let definitions = json!({
        "Node": {"type": "object", "properties": {
            "name": {"type": "string"}, "next": {"$ref": "Node"},
            "meta": {"allOf": [{"$ref": "Meta"}], "default": {}},
        }},
        "Meta": {"type": "object", "properties": {"id": {"type": "integer"}}},
    });
    let resolve = |name: &str| definitions.get(name);
    let root = json!({"$ref": "Node"});
    let schema = Schema::from_openapi_with("Node", &root, false, &resolve).unwrap();
    let env = Env::builder().schema("self", &schema).build();
    assert!(env.compile("self.name == 'a' && self.meta.id == 1").is_ok());
    assert!(env.compile("self.next.name == 'a'").is_err(), "a schema inside itself is not visible");
}

#[test]
fn schema_from_spec() {
    let text = SchemaSpec { kind: "string".to_owned(), ..SchemaSpec::default() };
    let list = SchemaSpec {
        kind: "array".to_owned(),
        items: Some(Box::new(text)),
        list_type: ListType::Set,
        ..SchemaSpec::default()
    };
    let schema = Schema::new("Names", &list, false).unwrap();
    let env = Env::kubernetes(34).schema("self", &schema).build();
    let names = json!(["b", "a"]);
    let program = env.compile("self == ['a', 'b']").unwrap();
    let value = program.evaluate(&Activation::new().json("self", &names), &mut Budget::unlimited()).unwrap();
    assert_eq!(value.as_bool(), Some(true));
}

#[test]
fn old_self_can_be_optional() {
    let schema = Schema::from_openapi("Root", &json!({"type": "integer"}), false).unwrap();
    let env = Env::kubernetes(34).schema("self", &schema).optional_schema("oldSelf", &schema).build();
    let program = env.compile("oldSelf.optMap(o, o < self).orValue(self == 0)").unwrap();
    assert!(program.uses("oldSelf") && program.uses("self") && !program.uses("other"));
    let (new, old) = (json!(2), json!(1));
    let run = |old: Option<&Json>| {
        let activation = Activation::new().json("self", &new).optional_json("oldSelf", old);
        program.evaluate(&activation, &mut Budget::unlimited()).unwrap().as_bool()
    };
    assert_eq!(run(Some(&old)), Some(true));
    assert_eq!(run(None), Some(false));
}

#[test]
fn json_without_a_schema_is_dynamic() {
    let env = Env::kubernetes(34).variable("object", Type::Dyn).build();
    let document =
        json!({"spec": {"n": 3, "f": 1.5, "list": [1, "a", null], "big": 18446744073709551615_u64}});
    let activation = Activation::new().json("object", &document);
    for expression in [
        "object.spec.n == 3 && object.spec.f == 1.5 && object.spec.list[1] == 'a' && object.spec.list[2] == null",
        "has(object.spec.n) && !has(object.spec.z) && object.spec.list.exists(x, x == 'a')",
        "type(object.spec.big) == double",
        "object.?spec.?z.orValue('none') == 'none'",
        "object.spec == {'n': dyn(3), 'f': dyn(1.5), 'list': dyn([dyn(1), dyn('a'), dyn(null)]), 'big': dyn(18446744073709551616.0)}",
    ] {
        let program = env.compile(expression).unwrap();
        let value = program.evaluate(&activation, &mut Budget::unlimited());
        assert_eq!(value.map(|value| value.as_bool()), Ok(Some(true)), "{expression}");
    }
}

#[test]
fn results_convert_to_json() {
    let env = table::everything();
    for (expression, expected) in [
        ("{'a': [1, 2]}.a", json!([1, 2])),
        (
            "Object{spec: Object.spec{replicas: 3, names: ['a']}}",
            json!({"spec": {"replicas": 3, "names": ["a"]}}),
        ),
        (
            "JSONPatch{op: 'add', path: '/x', value: {'k': 1.5}}",
            json!({"op": "add", "path": "/x", "value": {"k": 1.5}}),
        ),
        ("timestamp(0)", json!("1970-01-01T00:00:00Z")),
        ("duration('90s')", json!("90s")),
        ("b'hello'", json!("aGVsbG8=")),
        ("optional.of(1u)", json!(1)),
    ] {
        let program = env.compile(expression).unwrap();
        let activation = Activation::new();
        let value = program.evaluate(&activation, &mut Budget::unlimited()).unwrap();
        assert_eq!(value.to_json(), Ok(expected), "{expression}");
    }
    for (value, message) in [
        (Value::none(), "optional_type cannot be written as JSON"),
        (Value::Double(f64::NAN), "NaN cannot be written as JSON"),
        (Value::Type(Type::Int), "type cannot be written as JSON"),
    ] {
        assert_eq!(value.to_json().map_err(|error| error.to_string()), Err(message.to_owned()));
    }
}

#[test]
fn lenient_schema_reads_undeclared_parts_as_dyn() {
    let schema = json!({"type": "object", "properties": {
        "namespace": {"type": "string"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": {"type": "integer"}}},
        "anything": {}, "list": {"type": "array"}}});
    let spec = SchemaSpec::from_openapi(&schema, &|_| None).into_lenient();
    let schema = Schema::new("T", &spec, false).unwrap();
    let env = Env::kubernetes(34).schema("self", &schema).build();
    let data =
        json!({"namespace": "n", "free": {"known": 1, "deep": {"a": [7]}}, "anything": 2, "list": [3]});
    let evaluate = |text: &str| {
        let program = env.compile(text).unwrap();
        program
            .evaluate(&Activation::new().json("self", &data), &mut Budget::unlimited())
            .unwrap()
            .to_json()
            .unwrap()
    };
    assert_eq!(evaluate("self.namespace + self.__namespace__"), json!("nn"));
    assert_eq!(evaluate("self.free.deep.a[0]"), json!(7));
    assert_eq!(evaluate("self.free.?other.?gone.orValue(4)"), json!(4));
    assert_eq!(evaluate("self.anything == 2 && self.list[0] == 3"), json!(true));
    assert!(env.compile("self.free.known + 'x'").is_err());
    assert!(env.compile("self.other").is_err());
}
