//! Definitions to graphs: order, types, and the errors of bad ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlop_compose::crd::generate;
use orlop_compose::definition::DefinitionSpec;
use orlop_compose::graph::{BuildError, Built, Limits, build};
use orlop_compose::kinds::{Gvk, Kind, Kinds, schema_from_openapi};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn kinds() -> Kinds {
    let text = json!({"type": "string"});
    let config_map = json!({"type": "object", "properties": {
        "data": {"type": "object", "additionalProperties": text}, "immutable": {"type": "boolean"}}});
    let secret = json!({"type": "object", "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}}, "type": text}});
    let deployment = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"}, "selector": {"type": "object", "additionalProperties": text}}},
        "status": {"type": "object", "properties": {
            "readyReplicas": {"type": "integer"}, "at": {"type": "string", "format": "date-time"},
            "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": text, "status": text}}}}}}});
    let namespace = json!({"type": "object", "properties": {}});
    let all = [
        ("v1", "ConfigMap", "configmaps", true, config_map),
        ("v1", "Secret", "secrets", true, secret),
        ("apps/v1", "Deployment", "deployments", true, deployment),
        ("v1", "Namespace", "namespaces", false, namespace),
    ];
    all.into_iter()
        .map(|(version, kind, plural, namespaced, schema)| {
            let gvk = Gvk::new(version, kind);
            let schema = schema_from_openapi(&gvk, &schema, &|_| None);
            (gvk.clone(), Arc::new(Kind { gvk, plural: plural.to_owned(), namespaced, schema }))
        })
        .collect()
}

fn compile_with(schema: Json, resources: Json) -> Result<Built, BuildError> {
    let mut all = json!({"kind": "App", "apiVersion": "v1alpha1"});
    all.as_object_mut().expect("an object").extend(schema.as_object().cloned().unwrap_or_default());
    let spec =
        DefinitionSpec::from_json(&json!({"schema": all, "resources": resources})).expect("a definition");
    build("app", &spec, &kinds(), Limits::default())
}

fn compile(resources: Json) -> Result<Built, BuildError> {
    compile_with(json!({"spec": {"name": "string", "count": "integer", "list": "[]string"}}), resources)
}

fn map(id: &str, data: Json) -> Json {
    json!({"id": id, "template": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{}", id.to_lowercase())}, "data": data}})
}

#[track_caller]
fn refused(resources: Json, wanted: &str) {
    let error = compile(resources).map(|built| built.graph.order).expect_err("refused").to_string();
    assert!(error.contains(wanted), "{error}\nshould contain: {wanted}");
}

#[test]
fn order_prefers_the_order_of_declaration() {
    let built = compile(json!([
        map("c", json!({"v": "${a.data.x + b.data.x}"})),
        map("b", json!({"v": "${a.metadata.name}"})),
        map("a", json!({"v": "x"})),
        map("d", json!({})),
    ]))
    .unwrap();
    assert_eq!(built.graph.order, ["a", "b", "c", "d"]);
    let wave = |id: &str| built.graph.node(id).unwrap().wave;
    assert_eq!((wave("a"), wave("b"), wave("c"), wave("d")), (1, 2, 3, 3));
}

#[test]
fn bad_names_are_refused() {
    refused(json!([map("Bad", json!({}))]), "id Bad is not a valid KRO resource id: must be lower camelCase");
    refused(json!([map("schema", json!({}))]), "id schema is a reserved keyword in KRO");
    refused(json!([map("a", json!({})), map("a", json!({}))]), "found duplicate resource IDs a");
    let mut each = map("a", json!({}));
    each["forEach"] = json!([{"a": "${schema.spec.list}"}]);
    refused(json!([each]), "forEach iterator name \"a\" conflicts with resource ID");
}

#[test]
fn cycles_print_their_path() {
    refused(
        json!([
            map("a", json!({"v": "${c.data.v}"})),
            map("b", json!({"v": "${a.data.v}"})),
            map("c", json!({"v": "${b.data.v}"}))
        ]),
        "failed to build dependency graph: graph contains a cycle: a -> c -> b -> a",
    );
    refused(json!([map("a", json!({"v": "${a.data.v}"}))]), "self references are not allowed");
    let mut ordered = map("a", json!({}));
    ordered["dependsOn"] = json!(["b"]);
    refused(json!([ordered, map("b", json!({"v": "${a.data.v}"}))]), "graph contains a cycle: a -> b -> a");
}

#[test]
fn expression_errors_name_resource_path_expression_and_place() {
    let error = compile(json!([map("a", json!({"v": "${schema.spec.nothing}"}))])).unwrap_err().to_string();
    for wanted in [
        "failed to validate resource \"a\": ",
        "failed to compile template expression \"schema.spec.nothing\" at path \"data.v\": ",
        "ERROR: <input>:1:12: undefined field 'nothing'",
        " | ...........^",
    ] {
        assert!(error.contains(wanted), "{error}\nshould contain: {wanted}");
    }
    refused(
        json!([map("a", json!({"v": "${nobody.data.v}"}))]),
        "resource \"a\": expression \"nobody.data.v\" at path \"data.v\": references unknown identifiers: [nobody]\n | \
         nobody.data.v\n | ^",
    );
    refused(
        json!([map("a", json!({"v": "to ${schema.spec.name + nobody.data.v}"}))]),
        "[nobody]\n | to ${schema.spec.name + nobody.data.v}\n | ........................^",
    );
    refused(
        json!([map("a", json!({"v": "${schema.spec.count}"}))]),
        "type mismatch in resource \"a\" at path \"data.v\": expression \"schema.spec.count\" returns type \"int\" but expected \"string\"",
    );
    refused(
        json!([map("a", json!({"v": "n-${schema.spec.count}"}))]),
        "failed to compile template expression \"n-${schema.spec.count}\" at path \"data.v\": ERROR: <input>:1:6: found no \
         matching overload for '_+_'",
    );
    refused(
        json!([map("a", json!({"a.b": "${schema.spec.name == \"x\"}"}))]),
        "type mismatch in resource \"a\" at path \"data[\\\"a.b\\\"]\": expression \"schema.spec.name == \\\"x\\\"\" returns \
         type \"bool\" but expected \"string\": type kind mismatch: got \"bool\", expected \"string\"",
    );
    refused(json!([map("a", json!({"v": 1}))]), "expected string type for path data.v, got integer");
    refused(json!([map("a", json!({"v": "${a + ${b}}"}))]), "nested expressions are not allowed");
    let mut unknown = map("a", json!({}));
    unknown["template"]["extra"] = json!("x");
    refused(json!([unknown]), "error getting field schema for path extra: schema not found for field extra");
}

#[test]
fn conditions_of_nodes_are_checked() {
    let with = |field: &str, text: &str| {
        let mut node = map("a", json!({}));
        node[field] = json!([text]);
        json!([node, map("b", json!({}))])
    };
    refused(
        with("readyWhen", "a.data.v == 'x'"),
        "failed to parse readyWhen expressions: only standalone expressions are allowed",
    );
    refused(
        with("readyWhen", "${b.data.v == 'x'}"),
        "resource \"a\" readyWhen: references unknown identifiers: [b]",
    );
    refused(
        with("readyWhen", "${a.metadata.name}"),
        "must return bool or optional_type(bool), but returns \"string\"",
    );
    refused(
        with("includeWhen", "${schema.spec.count}"),
        "includeWhen expression \"schema.spec.count\" in resource \"a\" must return bool",
    );
    assert!(compile(with("includeWhen", "${b.?data.?v.orValue('') == 'x'}")).is_ok());
    assert!(compile(with("readyWhen", "${a.data.?v.hasValue()}")).is_ok());
}

#[test]
fn for_each_is_checked() {
    let each = |dimensions: Json, name: &str| {
        json!([{"id": "a", "forEach": dimensions, "template": {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}}])
    };
    assert!(compile(each(json!([{"x": "${schema.spec.list}"}]), "${x}")).is_ok());
    refused(
        each(json!([{"x": "${schema.spec.name}"}]), "${x}"),
        "forEach iterator \"x\" must return a list, got \"string\"",
    );
    refused(
        each(json!([{"x": "${schema.spec.list}"}]), "n"),
        "all forEach dimensions must be used to produce a unique resource identity, missing: [x]",
    );
    refused(
        each(json!([{"x": "${schema.spec.list}"}, {"y": "${[x]}"}]), "${x + y}"),
        "forEach iterator \"y\" cannot reference other iterators [x]",
    );
}

#[test]
fn templates_are_kubernetes_objects_of_known_kinds() {
    let bare = |template: Json| json!([{"id": "a", "template": template}]);
    refused(bare(json!({"kind": "ConfigMap", "metadata": {}})), "apiVersion field not found");
    refused(
        bare(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": 1})),
        "metadata field is not a map",
    );
    refused(
        bare(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "namespace": "x"}})),
        "resource \"a\" is cluster-scoped and must not set metadata.namespace",
    );
    refused(
        bare(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", "labels": {"kro.run/x": "y"}}}),
        ),
        "labels with prefix \"kro.run/\" are reserved for internal use",
    );
    let missing = compile(bare(json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "n"}})))
        .unwrap_err();
    assert!(matches!(&missing, BuildError::MissingKind { gvk, .. } if gvk.kind == "Thing"), "{missing}");
    assert!(
        missing
            .to_string()
            .contains("cannot resolve group version kind \"x.io/v1, Kind=Thing\": schema not found")
    );
    refused(
        json!([{"id": "a", "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}}]),
        "invalid external ref metadata for resource a: exactly one of name or selector must be provided",
    );
    refused(
        json!([{"id": "a", "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "selector": {"matchLabels": "x"}}}}]),
        "expected object type for path metadata.selector.matchLabels, got string",
    );
}

#[test]
fn status_types_are_inferred() {
    let resources = json!([{"id": "d", "template": {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": "${schema.spec.count}"}}}]);
    let status = json!({
        "ready": "${d.status.readyReplicas}", "at": "${d.status.at}", "text": "n-${d.metadata.name}", "metadata": "${d.metadata}",
        "conditionTypes": "${d.status.conditions.map(c, c.type)}", "nested": {"labels": "${d.metadata.labels}"},
        "list": ["${d.metadata.name}", "${schema.spec.name}"]});
    let built =
        compile_with(json!({"spec": {"name": "string", "count": "integer"}, "status": status}), resources)
            .unwrap();
    let properties = &built.status_schema["properties"];
    assert_eq!(properties["ready"], json!({"type": "integer"}));
    let time = json!({
        "type": "string", "format": "date-time", "description": "Timestamp representing a creation time"});
    assert_eq!(properties["at"], time);
    // Times inside of objects are left open, as in CRDs that kro made: a type would be a breaking change.
    assert_eq!(
        properties["metadata"]["properties"]["creationTimestamp"],
        json!({"x-kubernetes-preserve-unknown-fields": true})
    );
    assert_eq!(properties["metadata"]["properties"]["name"], json!({"type": "string"}));
    assert_eq!(properties["text"], json!({"type": "string"}));
    assert_eq!(properties["conditionTypes"], json!({"type": "array", "items": {"type": "string"}}));
    assert_eq!(
        properties["nested"]["properties"]["labels"],
        json!({"type": "object", "additionalProperties": {"type": "string"}})
    );
    assert_eq!(properties["list"], json!({"type": "array", "items": {"type": "string"}}));
    let refused = |status: Json| {
        compile_with(json!({"status": status}), json!([])).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(json!({"a": "b"})).contains("status fields without expressions are not supported: [a]"));
    assert!(
        refused(json!({"a": "${1 + 1}"}))
            .contains("instance status field must refer to a resource or schema: status.a")
    );
    assert!(
        refused(json!({"a": "${x.y}"}))
            .contains("status field \"a\" expression \"x.y\": references unknown identifiers: [x]")
    );
}

#[test]
fn conditions_of_authors_are_checked() {
    let with = |entry: &str| {
        compile_with(json!({"status": {"conditions": [entry]}}), json!([map("a", json!({}))])).map(|_| ())
    };
    assert!(
        with("${runtime.newCondition({type: 'Up', status: a.data.v == 'x' ? 'True' : 'False'})}").is_ok()
    );
    let refused = |entry: &str| with(entry).unwrap_err().to_string();
    assert!(
        refused("${runtime.newCondition({type: 'Up'})}")
            .contains("runtime.newCondition: missing required key \"status\"")
    );
    assert!(
        refused("${runtime.newCondition({type: 'Up', status: 'Yes'})}")
            .contains("status must be True, False or Unknown")
    );
    assert!(refused("${runtime.condition(schema, 'X')}").contains("unknown condition type"));
    assert!(refused("${'x'}").contains("condition expressions must return runtime.newCondition"));
    assert!(
        with("${runtime.newCondition({type: 'Up', status: runtime.condition(schema, 'Ready').status})}")
            .is_ok()
    );
}

#[test]
fn every_function_of_kro_is_there() {
    for text in [
        "hash.sha256('a') == hash.md5('a')",
        "'%x'.format([hash.fnv64a('a')]) == 'af63dc4c8601ec8c'",
        "json.marshal({'a': 1}) == '{\"a\":1}'",
        "json.unmarshal('{\"a\": 1}').a == 1.0",
        "random.seededString(8, 'x').size() == 8",
        "random.seededInt(0, 9, 'x') < 9",
        "{'a': 1}.merge({'b': 2}).size() == 2",
        "{'a': {'b': 1}}.deepMerge({'a': {'c': 2}}).a.size() == 2",
        "lists.setAtIndex([1, 2], 0, 3) == [3, 2]",
        "lists.insertAtIndex([1], 1, 2) == [1, 2]",
        "lists.removeAtIndex([1, 2], 0) == [2]",
        "lists.range(3) == [0, 1, 2]",
        "base64.encode(b'a') == 'YQ=='",
        "['b', 'a'].sort() == ['a', 'b']",
        "[1, 2].transformMap(i, v, v).size() == 2",
        "quantity('1Gi').isInteger()",
        "cel.bind(x, 1, x + 1) == 2",
        "semver('1.2.3').major() == 1",
        "ip('10.0.0.1').family() == 4",
        "url('https://a.b/c').getHost() == 'a.b'",
        "'a-b'.find('[a-z]') == 'a'",
        "[3, 1].sortBy(x, x) == [1, 3]",
    ] {
        let mut node = map("a", json!({}));
        node["includeWhen"] = json!([format!("${{{text}}}")]);
        if let Err(error) = compile(json!([node])) {
            panic!("{text}: {error}");
        }
    }
}

#[test]
fn generated_crd_has_the_fields_of_the_definition() {
    let spec = DefinitionSpec::from_json(&json!({"schema": {
        "kind": "Policy", "apiVersion": "v1beta1", "group": "x.io", "scope": "Cluster", "shortNames": ["po"],
        "spec": {"a": "string"}, "metadata": {"labels": {"l": "v"}}}}))
    .unwrap();
    let built = build("rgd", &spec, &kinds(), Limits::default()).unwrap();
    let crd = generate(&spec, &built, "uid");
    assert_eq!(crd["metadata"]["name"], "policies.x.io");
    assert_eq!(crd["metadata"]["labels"]["kro.run/resource-graph-definition-name"], "rgd");
    assert_eq!(crd["spec"]["names"]["listKind"], "PolicyList");
    assert_eq!(crd["spec"]["scope"], "Cluster");
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["additionalPrinterColumns"][0]["name"], "State");
    assert_eq!(
        version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["state"],
        json!({"type": "string"})
    );
    // kro refuses to take a CRD back that declares more fields of the status than its own.
    let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
    assert_eq!(status["properties"]["managedResources"], Json::Null);
    assert_eq!(status["x-kubernetes-preserve-unknown-fields"], true);
    assert!(orlop_compose::crd::is_same(&crd, &crd));
}

proptest! {
    /// Random edges that only point backwards always have an order that respects them; one that points forwards as well
    /// closes a cycle, whose text names it.
    #[test]
    fn order_respects_every_dependency(edges in prop::collection::vec((0..12usize, 0..12usize), 0..30), close in any::<bool>()) {
        let mut reads: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); 12];
        for (a, b) in &edges {
            if a != b {
                reads[*a.max(b)].insert(*a.min(b));
            }
        }
        let cyclic = close && reads[11].contains(&0);
        if cyclic {
            reads[0].insert(11);
        }
        let nodes: Vec<Json> = reads.iter().enumerate().map(|(index, reads)| {
            let data: serde_json::Map<String, Json> =
                reads.iter().map(|other| (format!("k{other}"), json!(format!("${{n{other}.metadata.name}}")))).collect();
            map(&format!("n{index}"), Json::Object(data))
        }).collect();
        match compile(json!(nodes)) {
            Err(error) => prop_assert!(cyclic && error.to_string().contains("graph contains a cycle: "), "{}", error),
            Ok(built) => {
                prop_assert!(!cyclic);
                let at = |id: usize| built.graph.order.iter().position(|other| *other == format!("n{id}")).unwrap();
                for (index, reads) in reads.iter().enumerate() {
                    for other in reads {
                        prop_assert!(at(*other) < at(index));
                        let wave = |id: usize| built.graph.node(&format!("n{id}")).unwrap().wave;
                        prop_assert!(wave(*other) < wave(index));
                    }
                }
            }
        }
    }
}
