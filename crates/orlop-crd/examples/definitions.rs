//! Cost of definitions: `cargo run --release -p orlop-crd --example definitions`.
//!
//! Rules over a realistic object, what checking one definition takes, and what a thousand of them hold in memory.

use orlop_crd::{Definition, apply_defaults, validate_create};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const MEASURED: Duration = Duration::from_secs(1);

/// The time this thread has had a core, which other programs on the machine do not change.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

/// Returns runs per second of one core.
fn rate(mut run: impl FnMut()) -> f64 {
    let (mut count, start, began) = (0_u64, Instant::now(), processor_time());
    while start.elapsed() < MEASURED {
        run();
        count += 1;
    }
    count as f64 / (processor_time() - began).as_secs_f64()
}

fn text(most: u64) -> Value {
    let description = "What this is for, told in a sentence or two as generated schemas do.";
    json!({"type": "string", "maxLength": most, "description": description})
}

fn spec_schema() -> Value {
    let port = json!({
        "type": "object", "required": ["name", "port"],
        "properties": {"name": text(15), "port": {"type": "integer"}, "protocol": {"type": "string", "enum": ["TCP", "UDP"], "default": "TCP"}},
        "x-kubernetes-validations": [{"rule": "self.port > 0 && self.port < 65536", "message": "port out of range"}],
    });
    let ports = json!({"type": "array", "maxItems": 50, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": port});
    json!({
        "type": "object", "required": ["replicas"],
        "properties": {
            "replicas": {"type": "integer", "minimum": 0}, "min": {"type": "integer"}, "max": {"type": "integer"}, "class": text(63),
            "schedule": {"type": "string", "format": "date-time"}, "cpu": {"x-kubernetes-int-or-string": true},
            "labels": {"type": "object", "maxProperties": 50, "additionalProperties": text(63)}, "ports": ports,
        },
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.replicas && self.replicas <= self.max", "messageExpression": "'%d is not between %d and %d'.format([self.replicas, self.min, self.max])"},
            {"rule": "self.class == oldSelf.class", "message": "class is immutable", "fieldPath": ".class"},
            {"rule": "self.ports.exists(p, p.name == 'http')", "message": "needs a port called http"},
            {"rule": "self.labels.all(key, key.matches('^[a-z]+$'))"},
        ],
    })
}

fn status_schema() -> Value {
    let condition = json!({
        "type": "object", "required": ["type", "status"],
        "properties": {"type": text(316), "status": text(7), "reason": text(1024), "message": text(32768), "lastTransitionTime": {"type": "string", "format": "date-time"}},
    });
    let conditions = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": condition});
    json!({"type": "object", "properties": {"ready": {"type": "integer"}, "conditions": conditions}})
}

fn definition(name: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": spec_schema(), "status": status_schema()}});
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": format!("{name}s"), "kind": name.to_uppercase()});
    let mut source = json!({
        "metadata": {"name": format!("{name}s.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    apply_defaults(&mut source);
    source
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = definition("widget");
    assert_eq!(validate_create(&source), []);
    let read = Definition::of(&source)?;
    let version = read.version("v1").ok_or("no v1")?;
    let ports: Vec<_> = (0..10).map(|n| json!({"name": if n == 3 { "http".to_owned() } else { format!("p{n}") }, "port": 8000 + n, "protocol": "TCP"})).collect();
    let object = json!({"apiVersion": "example.com/v1", "kind": "WIDGET", "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1"}, "spec": {
        "replicas": 3, "min": 1, "max": 5, "class": "fast", "schedule": "2026-01-01T00:00:00Z", "cpu": "500m", "labels": {"app": "w", "tier": "back"}, "ports": ports}});
    let mut older = object.clone();
    older["spec"]["replicas"] = json!(2);
    let rules = version.rules();
    let found = rules.validate(version.schema(), &object, Some(&older));
    assert_eq!(found.errors, []);
    // Four on the spec, one on each of ten ports.
    let evaluations = 14.0;
    let objects =
        rate(|| drop(std::hint::black_box(rules.validate(version.schema(), &object, Some(&older)))));
    println!("rules of an object:      {objects:>10.0}/s, {:.0} evaluations/s", objects * evaluations);
    let whole = rate(|| drop(std::hint::black_box(version.validate_update(&object, &older))));
    println!("everything of an object: {whole:>10.0}/s");
    let checked = rate(|| drop(std::hint::black_box(validate_create(&source))));
    println!("a definition checked:    {checked:>10.0}/s");
    let opened = rate(|| drop(std::hint::black_box(Definition::of(&source))));
    println!("a definition read:       {opened:>10.0}/s");
    let first_use = rate(|| {
        let Ok(read) = Definition::of(&source) else { return };
        let Some(version) = read.version("v1") else { return };
        std::hint::black_box((version.schema().properties.len(), version.rules().is_empty()));
    });
    println!("read and first used:     {first_use:>10.0}/s");

    let sources: Vec<_> = (0..1000).map(|n| definition(&format!("w{n}")).to_string()).collect();
    let bytes: usize = sources.iter().map(String::len).sum();
    let before = resident_kib();
    let mut definitions = Vec::new();
    for source in &sources {
        definitions.push(Definition::of(&serde_json::from_str(source)?)?);
    }
    println!(
        "1,000 definitions of {} bytes: {} KiB held",
        bytes / 1000,
        resident_kib().saturating_sub(before)
    );
    for definition in &definitions {
        let version = definition.version("v1").ok_or("no v1")?;
        std::hint::black_box((version.schema().properties.len(), version.rules().is_empty()));
    }
    println!("all of them used:         {} KiB held", resident_kib().saturating_sub(before));
    Ok(())
}
