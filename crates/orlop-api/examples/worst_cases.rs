//! Worst cases of patches and apply by body size: `cargo run --release -p orlop-api --example worst_cases`.

use orlop_api::apply::{FieldManager, SingleVersion, TypeRef};
use orlop_api::field_error::FieldPath;
use orlop_api::group_version::GroupVersionKind;
use orlop_api::patch::{JsonPatch, OPERATIONS_MAX, strategic_merge_patch};
use orlop_api::schema::{builtin, from_openapi, structural, validate};
use orlop_api::time::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Prints the processor time of `work`, which a busy machine does not distort.
fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let started = processor_ns();
    let result = work();
    println!("{name}: {:.1} ms", (processor_ns() - started) as f64 / 1e6);
    result
}

/// Returns the processor time of this thread.
fn processor_ns() -> u64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    statistics.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or_default()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pod = builtin::type_of("", "v1", "Pod").ok_or("no Pod")?.schema();
    let containers = |range: std::ops::Range<usize>, image: &str| {
        let items: Vec<Value> = range.map(|n| json!({"name": format!("c{n}"), "image": image})).collect();
        json!({"spec": {"containers": items}})
    };
    let (live, patch) = (containers(0..10_000, "a"), containers(5_000..15_000, "b"));
    timed("strategic merge of 10,000 over 10,000 items", || strategic_merge_patch(&live, &patch, pod))?;

    let document = json!({"a": {}, "list": (0..50_000).map(|n| json!({"n": n})).collect::<Vec<_>>()});
    let adds: Vec<Value> = (0..OPERATIONS_MAX)
        .map(|n| json!({"op": "add", "path": format!("/a/{n}"), "value": {"x": [n]}}))
        .collect();
    let adds = JsonPatch::decode(json!(adds).to_string().as_bytes())?;
    timed("JSON patch of 10,000 adds on 100,000 nodes", || adds.apply(&document))?;

    let schema =
        from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "map": {"type": "object", "additionalProperties": {"type": "string"}}}}}}));
    let kind = GroupVersionKind::new("example.com", "v1", "Thing");
    let versions = SingleVersion { api_version: "example.com/v1", of: TypeRef::resource(&schema) };
    let fields =
        FieldManager { kind: &kind, versions: &versions, subresource: "", owned_fields: &BTreeMap::new() };
    let object = |value: &str| {
        let map: serde_json::Map<_, _> = (0..30_000).map(|n| (format!("k{n}"), value.into())).collect();
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"map": map}})
    };
    let live =
        fields.apply(None, &object("a"), "me", false, Time::from_unix(0)).map_err(|status| status.message)?;
    let conflicts = timed("apply with 30,000 conflicts", || {
        fields.apply(Some(&live.object), &object("b"), "them", false, Time::from_unix(1))
    });
    println!(
        "  {} causes",
        conflicts.err().and_then(|status| status.details).map_or(0, |details| details.causes.len())
    );

    let names: Vec<String> = (0..25_000).map(|n| format!("p{n}")).collect();
    let properties: serde_json::Map<_, _> = names
        .iter()
        .map(|name| (name.clone(), json!({"type": "string", "pattern": format!("^{name}-[a-z]+$")})))
        .collect();
    let schema = json!({"type": "object", "properties": properties});
    let mut budget = structural::ValidationBudget::default();
    let errors = timed("validation of a schema with 25,000 patterns", || {
        structural::validate_structural_schema(&schema, &FieldPath::root("schema"), &mut budget)
    });
    let schema = from_openapi(&schema);
    let object: serde_json::Map<_, _> =
        names.iter().map(|name| (name.clone(), format!("{name}-x").into())).collect();
    let object = Value::Object(object);
    let before = resident_mib();
    timed("first object with 25,000 patterns", || validate(&object, &schema));
    println!("  {} schema errors, {before} MiB before, {} MiB after", errors.len(), resident_mib());
    Ok(())
}

/// Returns the resident set size of this process.
fn resident_mib() -> usize {
    let statistics = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statistics.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or_default() * 4096 / (1 << 20)
}
