//! Generated requests: every sample with every mutation, its life, and lists with every combination of parameters.
//!
//! The generator has no chance in it: the same number of requests is the same requests.

use serde_json::{Map, Value, json};

use crate::{
    request::{APPLY, JSON, JSON_PATCH, MERGE, Request, STRATEGIC},
    samples::{NAMESPACE, Sample},
};

/// Values that fields are replaced with.
fn replacements() -> Vec<Value> {
    vec![
        Value::Null,
        json!("x y"),
        json!(""),
        json!(-1),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
        json!([{"a": 1}]),
        json!("UPPER/../x"),
        json!(9_007_199_254_740_993_i64),
    ]
}

/// Returns up to `count` requests: first those that are made once, then mutations in turn of kinds.
pub(crate) fn requests(samples: &[Sample], count: usize) -> Vec<Request> {
    let mut requests = Vec::new();
    requests.extend(paths());
    for (index, sample) in samples.iter().enumerate() {
        requests.extend(life(sample, 1000 + index));
        requests.extend(lists(sample));
    }
    let mut mutations: Vec<_> = samples.iter().map(|sample| mutations(sample).into_iter()).collect();
    while requests.len() < count {
        let before = requests.len();
        for kind in &mut mutations {
            requests.extend(kind.next());
        }
        if requests.len() == before {
            break;
        }
    }
    requests.truncate(count);
    requests
}

/// Requests of paths and methods that there are not, and of media types.
fn paths() -> Vec<Request> {
    let mut requests = Vec::new();
    let base = format!("/api/v1/namespaces/{NAMESPACE}");
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/api/v2",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/apps/v9",
        "/apis/none.example.com",
        "/apis/none.example.com/v1/things",
        "/api/v1/nothings",
        "/api/v1/namespaces/compare/nothings/x",
        "/api/v1/namespaces/compare/pods/x/nothing",
        "/api/v1/namespaces/compare/pods/x/log",
        "/apis/apps/v1/namespaces/compare/deployments/x/scale",
        "/version/x",
        "/nothing",
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let request = Request::new("paths", method, path);
            let has_body = matches!(method, "POST" | "PUT" | "PATCH");
            requests.push(if has_body { request.body(&json!({})) } else { request });
        }
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for accept in [
        "*/*",
        "application/*",
        "text/plain",
        "application/yaml;q=0.1,application/json",
        "application/xml",
        table,
        "application/json;as=Table;v=v9;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/json;as=Nothing;v=v1;g=meta.k8s.io",
    ] {
        for path in ["configmaps", "configmaps/absent"] {
            let label = format!("accept {accept}");
            requests.push(Request::new(label, "GET", format!("{base}/{path}")).accept(accept));
        }
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "types"}});
    for content_type in ["text/plain", "application/xml", MERGE, APPLY, "application/json; charset=utf-8", ""]
    {
        for method in ["POST", "PUT", "PATCH"] {
            let name = if method == "POST" { "" } else { "/types" };
            let path = format!("{base}/configmaps{name}?dryRun=All&fieldManager=m");
            requests
                .push(Request::new("content type", method, path).content_type(content_type).body(&object));
        }
    }
    for text in ["", "{", "[]", "null", "7", "\"x\"", "{}{}", "{\"kind\":7}", "a: b\n", "{\"metadata\":[]}"] {
        requests.push(Request::new("body", "POST", format!("{base}/configmaps")).text(text));
        for patch in [JSON_PATCH, MERGE, STRATEGIC, APPLY] {
            let path = format!("{base}/configmaps/patched?fieldManager=m&dryRun=All");
            requests.push(Request::new("body of a patch", "PATCH", path).content_type(patch).text(text));
        }
    }
    for query in [
        "dryRun=None",
        "dryRun=All&dryRun=All",
        "dryRun=all",
        "fieldValidation=strict",
        "fieldValidation=Strict",
        "fieldManager=",
        "fieldManager=%01",
        "pretty=true",
        "unknown=1",
        "force=true",
    ] {
        let path = format!("{base}/configmaps?{query}");
        requests.push(Request::new("parameters", "POST", path).body(&json!({"metadata": {"name": "UPPER"}})));
    }
    requests
}

/// The life of an object: create, read, replace, patch, delete.
fn life(sample: &Sample, number: usize) -> Vec<Request> {
    let (collection, object, name) = (sample.collection(), sample.object(number), sample.name(number));
    let (item, label) = (format!("{collection}/{name}"), format!("life of {}", sample.resource));
    let request = |method: &str, path: &str| Request::new(label.as_str(), method, path);
    let mut labelled = object.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let mut stale = labelled.clone();
    stale["metadata"]["resourceVersion"] = "1".into();
    let mut other_uid = labelled.clone();
    other_uid["metadata"]["uid"] = "other".into();
    let applied = json!({"apiVersion": sample.api_version, "kind": sample.kind,
        "metadata": {"name": name, "annotations": {"applied": "yes"}}});
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    vec![
        request("GET", &item),
        request("DELETE", &item),
        request("PUT", &format!("{item}?dryRun=All")).body(&object),
        request("POST", &format!("{collection}?dryRun=All")).body(&object),
        request("POST", &collection).body(&object),
        request("POST", &collection).body(&object),
        request("GET", &item),
        request("GET", &item).accept(table),
        request("GET", &item).accept(partial),
        request("GET", &format!("{item}/status")),
        request("GET", &format!("{item}/scale")),
        request("PUT", &item).body(&labelled),
        request("PUT", &item).body(&stale),
        request("PUT", &item).body(&other_uid),
        request("PUT", &format!("{collection}/other")).body(&object),
        request("PATCH", &item)
            .content_type(MERGE)
            .body(&json!({"metadata": {"labels": {"c": "d", "a": null}}})),
        request("PATCH", &item).content_type(MERGE).body(&json!({"metadata": {"name": "other"}})),
        request("PATCH", &item).content_type(MERGE).body(&json!({"unknownField": 1})),
        request("PATCH", &format!("{item}?fieldValidation=Strict"))
            .content_type(MERGE)
            .body(&json!({"unknownField": 1})),
        request("PATCH", &item)
            .content_type(STRATEGIC)
            .body(&json!({"metadata": {"annotations": {"e": "f"}}})),
        request("PATCH", &item)
            .content_type(JSON_PATCH)
            .body(&json!([{"op": "add", "path": "/metadata/labels/g", "value": "h"}])),
        request("PATCH", &item)
            .content_type(JSON_PATCH)
            .body(&json!([{"op": "test", "path": "/metadata/name", "value": "other"}])),
        request("PATCH", &item).content_type(JSON_PATCH).body(&json!([{"op": "remove", "path": "/nothing"}])),
        request("PATCH", &format!("{item}?fieldManager=one")).content_type(APPLY).body(&applied),
        request("PATCH", &format!("{item}?fieldManager=two")).content_type(APPLY).body(&{
            let mut conflicting = applied.clone();
            conflicting["metadata"]["annotations"]["applied"] = "no".into();
            conflicting
        }),
        request("PATCH", &item).content_type(APPLY).body(&applied),
        request("PATCH", &format!("{item}/status"))
            .content_type(MERGE)
            .body(&json!({"metadata": {"labels": {"s": "t"}}, "status": {}})),
        request("GET", &format!("{collection}?fieldSelector=metadata.name%3D{name}")),
        request("DELETE", &format!("{item}?dryRun=All")),
        request("DELETE", &item).body(&json!({"kind": "DeleteOptions", "apiVersion": "v1",
            "preconditions": {"uid": "other"}})),
        request("DELETE", &format!("{item}?propagationPolicy=Nothing")),
        request("DELETE", &format!("{item}?gracePeriodSeconds=0")),
        request("GET", &item),
    ]
}

/// Lists with combinations of parameters.
fn lists(sample: &Sample) -> Vec<Request> {
    let mut requests = Vec::new();
    for selector in [
        "",
        "labelSelector=a%3Db",
        "labelSelector=a+in",
        "fieldSelector=metadata.name%3Dabsent",
        "fieldSelector=spec.x%3Dy",
    ] {
        for version in [
            "",
            "resourceVersion=0",
            "resourceVersion=x",
            "resourceVersion=1&resourceVersionMatch=Exact",
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        ] {
            // A label that nothing has keeps the objects of the servers' own out.
            let own = if selector.starts_with("label") { "" } else { "labelSelector=absent" };
            let query: Vec<&str> =
                [selector, version, own].into_iter().filter(|part| !part.is_empty()).collect();
            let path = format!("{}?{}", sample.collection(), query.join("&"));
            requests.push(Request::new(format!("list of {}", sample.resource), "GET", path));
        }
    }
    for rest in [
        "limit=x",
        "limit=-1&labelSelector=absent",
        "continue=x",
        "watch=1&resourceVersion=x",
        "timeoutSeconds=x",
        "sendInitialEvents=true",
    ] {
        let path = format!("{}?{rest}", sample.collection());
        requests.push(Request::new(format!("list of {}", sample.resource), "GET", path));
    }
    requests
}

/// Dry runs of creates of a sample with one field changed.
fn mutations(sample: &Sample) -> Vec<Request> {
    let object = sample.object(1);
    let mut pointers = Vec::new();
    collect(String::new(), &object, &mut pointers);
    let validation = ["", "&fieldValidation=Strict", "&fieldValidation=Ignore"];
    let mut requests = Vec::new();
    let mut push = |mutated: Value| {
        let validation = validation[requests.len() % validation.len()];
        let path = format!("{}?dryRun=All{validation}", sample.collection());
        let label = format!("mutation of {}", sample.resource);
        requests.push(Request::new(label, "POST", path).content_type(JSON).body(&mutated));
    };
    for pointer in &pointers {
        push(without(&object, pointer));
        if object.pointer(pointer).is_some_and(Value::is_object) {
            push(with(&object, &format!("{pointer}/unknownField"), json!(1)));
        }
    }
    for value in replacements() {
        for pointer in pointers.iter().filter(|pointer| !pointer.is_empty()) {
            push(with(&object, pointer, value.clone()));
        }
    }
    for (name, value) in [
        ("generateName", json!("x-")),
        ("labels", json!({"bad key!": "v"})),
        ("labels", json!({"k": "bad value!"})),
        ("annotations", json!({"bad key!": "v"})),
        ("finalizers", json!(["not-qualified"])),
        ("ownerReferences", json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}])),
        ("ownerReferences", json!([{"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "u"}])),
        ("namespace", json!("elsewhere")),
        ("generation", json!(7)),
        ("uid", json!("given")),
        ("resourceVersion", json!("5")),
        ("managedFields", json!([{"manager": "m"}])),
        ("name", json!("x".repeat(260))),
        ("name", json!("Ünicode")),
        ("name", json!("a/b")),
        ("name", json!("..")),
    ] {
        push(with(&object, &format!("/metadata/{name}"), value));
    }
    requests
}

/// Collects the pointers of all values, the root's first.
fn collect(pointer: String, value: &Value, pointers: &mut Vec<String>) {
    pointers.push(pointer.clone());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                collect(format!("{pointer}/{escaped}"), value, pointers);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(format!("{pointer}/{index}"), item, pointers);
            }
        }
        _ => {}
    }
}

fn split(pointer: &str) -> (&str, String) {
    let (parent, last) = pointer.rsplit_once('/').unwrap_or_default();
    (parent, last.replace("~1", "/").replace("~0", "~"))
}

/// Returns an object without one of its values.
fn without(object: &Value, pointer: &str) -> Value {
    let mut object = object.clone();
    if pointer.is_empty() {
        return Value::Object(Map::new());
    }
    let (parent, last) = split(pointer);
    match object.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.remove(&last);
        }
        Some(Value::Array(items)) => {
            if let Ok(index) = last.parse::<usize>()
                && index < items.len()
            {
                items.remove(index);
            }
        }
        _ => {}
    }
    object
}

/// Returns an object with another value at a pointer.
fn with(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    let (parent, last) = split(pointer);
    match object.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.insert(last, value);
        }
        Some(Value::Array(items)) => {
            if let Some(item) = last.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                *item = value;
            }
        }
        _ => {}
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn there_are_ten_thousand_requests_and_always_the_same() {
        let samples = samples::load().unwrap();
        let (one, other) = (requests(&samples, 10_000), requests(&samples, 10_000));
        assert_eq!(one.len(), 10_000);
        assert!(
            one.iter()
                .zip(&other)
                .all(|(one, other)| one.summary() == other.summary() && one.body == other.body)
        );
    }

    #[test]
    fn values_are_taken_out_and_replaced() {
        let object = json!({"a": {"b/c": [1, 2]}});
        assert_eq!(without(&object, "/a/b~1c/0"), json!({"a": {"b/c": [2]}}));
        assert_eq!(with(&object, "/a/b~1c/1", json!("x")), json!({"a": {"b/c": [1, "x"]}}));
        assert_eq!(with(&object, "/a/new", json!(1)), json!({"a": {"b/c": [1, 2], "new": 1}}));
    }
}
